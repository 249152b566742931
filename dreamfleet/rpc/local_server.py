"""The server for clients on the same machine: one thread reads requests; answers go out on the threads that made them.

It speaks ZeroMQ's protocol as a socket of the type ROUTER does.
"""

import collections
import contextlib
import math
import select
import time
from pathlib import Path

from dreamfleet.rpc import address, codec, zmtp
from dreamfleet.rpc.messages import Answer
from dreamfleet.rpc.wire_server import ENGINE_LIMIT, SEND_QUEUE, WireServer

_LINGER_S = 0.5


class LocalServer(WireServer):
    """Serves on an `ipc:` address, which only processes that may open its file can reach."""

    def __init__(self, addr: str, name: str, *, max_message_bytes: int, max_pending: int):
        super().__init__(addr, name, max_message_bytes=max_message_bytes, max_pending=max_pending)
        self._path = address.check_ipc(addr).removeprefix("ipc:")
        self._connections: dict[int, zmtp.ZmtpConnection] = {}
        self._received: collections.deque[tuple] = collections.deque()  # connections and messages of theirs

    def deliver(self, answers: list[Answer]) -> None:
        is_stuck = False
        for request, answer in answers:
            connection: zmtp.ZmtpConnection = request.origin[0]
            self._send(connection, self._encode(request, answer))
            is_stuck |= connection.unsent > 0
        with self._lock:
            is_stuck |= self._pending >= self._max_pending
            self._pending -= len(answers)
        if is_stuck:
            self.wake()

    def stats(self) -> dict[str, float]:
        return super().stats() | {"clients": len(self._connections)}

    def _send(self, connection: zmtp.ZmtpConnection, frames: list[codec.Buffer]) -> None:
        if connection.unsent > SEND_QUEUE:
            self._drop_reply(is_stuck=True)
            return
        try:
            connection.send(frames)
            with self._lock:
                self._bytes_out += sum(map(len, frames))
        except OSError:
            self._drop_reply(is_stuck=False)

    def _listen(self) -> None:
        address.remove_stale_socket(self.addr)
        self._listener = zmtp.make_socket()
        try:
            self._listener.bind(self._path)
        except OSError as error:
            self._listener.close()
            raise address.cannot_listen(self.addr, error) from None
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        for fd in (self._listener.fileno(), self._wakeup.fd):
            self._epoll.register(fd, select.EPOLLIN)
        self._reader.start()

    def _read_loop(self) -> None:
        while not self.is_closed:
            try:
                for fd, events in self._wait(self.next_deadline()):
                    self._handle(fd, events)
                    self._accept_received()
                self.flush()
            except Exception as error:
                self._limited_log.error(f"io/{type(error).__name__}", f"error in the I/O thread: {error!r}")
        Path(self._path).unlink(missing_ok=True)
        self._listener.close()
        self._all_answered.wait()
        self._linger()
        for connection in self._connections.values():
            connection.close()
        self._epoll.close()

    def _wait(self, until: float) -> list[tuple[int, int]]:
        timeout_s = None if until == math.inf else max(0.0, until - time.monotonic())
        if not self._received:  # else there are as many requests as may be pending
            return self._epoll.poll(timeout_s)
        only_wakeup = select.poll()
        only_wakeup.register(self._wakeup.fd, select.POLLIN)
        return only_wakeup.poll(None if timeout_s is None else math.ceil(1000 * timeout_s))

    def _handle(self, fd: int, events: int) -> None:
        if connection := self._connections.get(fd):
            self._serve(connection, events)
        elif fd == self._wakeup.fd:
            self._wakeup.clear()
            for fd, connection in self._connections.items():
                self._epoll.modify(fd, connection.events)
        elif fd == self._listener.fileno():
            self._admit()

    def _admit(self) -> None:
        with contextlib.suppress(BlockingIOError):
            accepted, _ = self._listener.accept()
            accepted.setblocking(True)  # each use says whether it waits
            with contextlib.suppress(OSError):  # gone already
                connection = zmtp.ZmtpConnection(accepted, b"ROUTER", ENGINE_LIMIT)
                self._connections[connection.fd] = connection
                self._epoll.register(connection.fd, select.EPOLLIN)

    def _serve(self, connection: zmtp.ZmtpConnection, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                connection.flush()
                self._epoll.modify(connection.fd, connection.events)
            messages = connection.read() if events & ~select.EPOLLOUT else []
        except OSError as error:
            if not connection.is_ready:
                self._limited_log.warning("handshake", f"refused a connection without our protocol: {error}")
            self._drop(connection)
            return
        self._received += [(connection, frames) for frames in messages]

    def _accept_received(self) -> None:
        while self._received and self._pending < self._max_pending:
            with self._lock:
                self._pending += 1
            self._accept(*self._received.popleft())

    def _drop(self, connection: zmtp.ZmtpConnection) -> None:
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
