"""Wakes a thread that waits in a poll, from any other thread."""

import contextlib
import os
import threading


class Wakeup:
    """An event file descriptor: `set` makes it readable until `clear`; `set` after `close` does nothing."""

    def __init__(self):
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()  # a late `set` must not write to a descriptor that was given to somebody else
        self._is_open = True

    def set(self) -> None:
        with self._lock:
            if self._is_open:
                os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        with self._lock:
            if self._is_open:
                self._is_open = False
                os.close(self.fd)
