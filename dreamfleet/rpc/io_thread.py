"""What the threads that move data need: a loop that survives errors, and a way to be woken."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from dreamfleet import lifecycle
from dreamfleet.rpc.limited_log import LimitedLog

if TYPE_CHECKING:
    from dreamfleet.rpc.server import Server


def start_io_thread(
    name: str, log: LimitedLog, is_over: Callable[[], bool], step: Callable[[], None], end: Callable[[], None]
) -> threading.Thread:
    """Calls `step` in a thread until `is_over`, then `end`; an error in a step is logged, and the next one follows."""

    def run() -> None:
        while not is_over():
            try:
                step()
            except Exception as error:
                log.error(f"io/{type(error).__name__}", f"error in the I/O thread: {error!r}")
        end()

    return lifecycle.spawn(run, name=f"{name}-rpc-io")


class EventFile:
    """The cheapest descriptor to wake a thread by, which only Linux has."""

    def __init__(self):
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def write(self) -> None:
        os.eventfd_write(self.fd, 1)

    def read(self) -> None:
        os.eventfd_read(self.fd)

    def close(self) -> None:
        os.close(self.fd)


class EventSockets:
    """The same on other systems."""

    def __init__(self):
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        self.fd = self._reader.fileno()

    def write(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full, and so readable
            self._writer.send(b"\0")

    def read(self) -> None:
        self._reader.recv(4096)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class Wakeup:
    """An event with a file descriptor: `set` makes it readable until `clear`; `set` after `close` does nothing."""

    def __init__(self):
        self._event = EventFile() if hasattr(os, "eventfd") else EventSockets()
        self.fd = self._event.fd
        self._lock = threading.Lock()  # a late `set` must not write to a descriptor that was given to somebody else
        self._is_open = True

    def set(self) -> None:
        with self._lock:
            if self._is_open:
                self._event.write()

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._event.read()

    def close(self) -> None:
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._event.close()


class ServerThread:
    """The I/O thread of a server, which ends after the workers that make the last answers."""

    def __init__(self, server: "Server"):
        self.wakeup = Wakeup()
        self.all_answered = threading.Event()  # workers have ended, so connections may be closed
        self._server = server
        self._thread: threading.Thread | None = None

    def start(self, is_over: Callable[[], bool], step: Callable[[], None], end: Callable[[], None]) -> None:
        self._thread = start_io_thread(self._server.name, self._server.log, is_over, step, end)

    def close(self) -> None:
        if self._thread:
            self.all_answered.set()
            self.wakeup.set()
            self._server.join([self._thread])
        self.wakeup.close()
