"""The local engine of a server: one thread reads requests; answers go out on the threads that made them."""

import collections
import contextlib
import math
import os
import select
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamfleet.base.addresses import Address
from dreamfleet.rpc import addresses, codec
from dreamfleet.rpc.io_thread import ServerThread
from dreamfleet.rpc.local.connection import Connection, make_socket
from dreamfleet.rpc.messages import Answer, Request, is_left
from dreamfleet.rpc.wire import ENGINE_LIMIT, SEND_QUEUE, ServerWire

if TYPE_CHECKING:
    from dreamfleet.rpc.server import Server

_LINGER_S = 0.5
_MODE = 0o600  # of the socket's file: for this user alone


class LocalServerEngine:
    """Serves on a unix socket, which only processes that may open its file can reach."""

    def __init__(self, server: "Server", addr: Address, wire: ServerWire):
        self._server, self._path, self._wire = server, addr.path, wire
        self._thread = ServerThread(server)
        self._connections: dict[int, Connection] = {}
        self._received: collections.deque[tuple] = collections.deque()  # connections and messages of theirs

    def listen(self) -> None:
        addresses.remove_stale_socket(self._server.addr)
        self._listener = make_socket()
        try:
            os.fchmod(self._listener.fileno(), _MODE)  # which the file gets from the socket, less the umask
            self._listener.bind(self._path)
            Path(self._path).chmod(_MODE)
        except OSError as error:
            self._listener.close()
            raise addresses.cannot_listen(self._server.addr, error) from None
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        for fd in (self._listener.fileno(), self._thread.wakeup.fd):
            self._epoll.register(fd, select.EPOLLIN)
        self._thread.start(lambda: self._server.is_closed, self._step, self._end)

    def open(self, request: Request) -> tuple[Any, dict[str, Any]]:
        return self._wire.open(request)

    def deliver(self, answers: list[Answer]) -> None:
        is_stuck, wire = False, self._wire
        for request, answer in answers:
            if is_left(answer):
                continue
            connection: Connection = request.origin[0]
            self._send(connection, wire.encode(request, answer))
            is_stuck |= bool(connection.unsent)
        with wire.lock:
            is_stuck |= wire.pending >= wire.max_pending
            wire.pending -= len(answers)
        if is_stuck:
            self.wake()

    def wake(self) -> None:
        self._thread.wakeup.set()

    def stats(self) -> dict[str, float]:
        return {"pending": self._wire.pending, "clients": len(self._connections)}

    def close(self) -> None:
        self._thread.close()

    def _send(self, connection: Connection, frames: list[codec.Buffer]) -> None:
        if len(connection.unsent) > SEND_QUEUE:
            self._wire.drop_reply(is_stuck=True)
            return
        try:
            connection.send(frames)
            with self._wire.lock:
                self._server.counters.bytes_out += sum(map(len, frames))
        except OSError:
            self._wire.drop_reply(is_stuck=False)

    def _step(self) -> None:
        for fd, events in self._wait(self._server.next_deadline()):
            self._handle(fd, events)
            self._accept_received()
        self._server.flush()

    def _end(self) -> None:
        Path(self._path).unlink(missing_ok=True)
        self._listener.close()
        self._thread.all_answered.wait()
        self._linger()
        for connection in self._connections.values():
            connection.close()
        self._epoll.close()

    def _wait(self, until: float) -> list[tuple[int, int]]:
        timeout_s = None if until == math.inf else max(0.0, until - time.monotonic())
        if not self._received:  # else there are as many requests as may be pending
            return self._epoll.poll(timeout_s)
        only_wakeup = select.poll()
        only_wakeup.register(self._thread.wakeup.fd, select.POLLIN)
        return only_wakeup.poll(None if timeout_s is None else math.ceil(1000 * timeout_s))

    def _handle(self, fd: int, events: int) -> None:
        if connection := self._connections.get(fd):
            self._serve(connection, events)
        elif fd == self._thread.wakeup.fd:
            self._thread.wakeup.clear()
            for fd, connection in self._connections.items():
                self._epoll.modify(fd, connection.events)
        elif fd == self._listener.fileno():
            self._admit()

    def _admit(self) -> None:
        with contextlib.suppress(BlockingIOError):
            accepted, _ = self._listener.accept()
            accepted.setblocking(True)  # each use says whether it waits
            with contextlib.suppress(OSError):  # gone already
                connection = Connection(accepted, ENGINE_LIMIT)
                self._connections[connection.fd] = connection
                self._epoll.register(connection.fd, select.EPOLLIN)

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                connection.flush()
                self._epoll.modify(connection.fd, connection.events)
            messages = connection.read() if events & ~select.EPOLLOUT else []
        except OSError as error:
            if not connection.is_ready:
                self._server.log.warning("handshake", f"refused a connection without our protocol: {error}")
            self._drop(connection)
            return
        self._received += [(connection, frames) for frames in messages]

    def _accept_received(self) -> None:
        wire = self._wire
        while self._received and wire.pending < wire.max_pending:
            with wire.lock:
                wire.pending += 1
            wire.accept(*self._received.popleft())

    def _drop(self, connection: Connection) -> None:
        self._epoll.unregister(connection.fd)
        del self._connections[connection.fd]
        connection.close()

    def _linger(self) -> None:
        """Gives clients a moment to take the answers that were already made."""
        poll, until = select.poll(), time.monotonic() + _LINGER_S
        stuck = {connection.fd: connection for connection in self._connections.values() if connection.unsent}
        for fd in stuck:
            poll.register(fd, select.POLLOUT)
        while stuck and (ready := poll.poll(max(0, 1000 * (until - time.monotonic())))):
            for fd, _ in ready:
                with contextlib.suppress(OSError):
                    stuck[fd].flush()
                    if stuck[fd].unsent:
                        continue
                poll.unregister(fd)
                del stuck[fd]
