"""The client of a ZeroMQ server on the same machine that has no threads at all, neither its own nor libzmq's."""

import collections
import math
import select
import threading
import time
from collections.abc import Callable

from dreamfleet.rpc import address
from dreamfleet.rpc.future import Future
from dreamfleet.rpc.wakeup import Wakeup
from dreamfleet.rpc.wire_client import WireClient
from dreamfleet.rpc.zmtp import READ_S, ZmtpConnection

_RECONNECT_S, _RECONNECT_MAX_S = 0.02, 0.5
_HANDSHAKE_S = 5.0


class LocalZmqClient(WireClient):
    """For one thread with one call in flight at a time: it does everything itself, which is fastest."""

    def __init__(self, addr: str, name: str, *, peer: str, max_inflight: int):
        super().__init__(name, peer, max_inflight)
        self._path = address.check_ipc(addr).removeprefix("ipc:")
        self._wakeup = Wakeup()  # for `close`, which may come from another thread
        self._turn_lock = threading.Lock()  # held by whoever uses the connection, or waits for it
        self._connection: ZmtpConnection | None = None
        self._outbox: collections.deque[Future] = collections.deque()  # calls that wait for a connection
        self._delay_s = _RECONNECT_S
        self._next_try = 0.0

    def advance(self) -> None:
        with self._turn_lock:
            if not self._is_closed:
                self._turn()

    def _submit(self, future: Future) -> None:
        with self._turn_lock:
            if self._is_closed:
                return
            self._outbox.append(future)
            if self.connected:
                self._use(self._send_calls)

    def _hang_up(self) -> None:
        self._wakeup.set()
        with self._turn_lock:
            if self._connection:
                self._connection.close()
        self._wakeup.close()

    def _await(self, future: Future, until: float) -> bool:
        with self._turn_lock:
            # Most answers come soon, and waiting for them in the socket is the fastest way.
            if future.is_sent and not self._is_closed and until - time.monotonic() > READ_S:
                self._use(lambda connection: self._read(connection, blocking=not connection.is_full))
            return future.is_settled() or self._turn_until(future.is_settled, until)

    def _block(self, is_ready: Callable[[], bool], until: float) -> bool:
        with self._turn_lock:
            return self._turn_until(is_ready, until)

    def _turn_until(self, is_ready: Callable[[], bool], until: float) -> bool:
        while not is_ready() and not self._is_closed:
            if not self._turn() and not is_ready():
                if time.monotonic() >= until:
                    return False
                self._wait(until)
        return is_ready()

    def _turn(self) -> bool:
        """Connects, sends and reads as far as that is possible at once; returns whether anything has happened."""
        if not self.connected and time.monotonic() >= self._next_try:
            self._connect()
        return self._use(lambda connection: self._read(connection, blocking=False))

    def _use(self, fn: Callable[[ZmtpConnection], bool]) -> bool:
        """Does something with the connection, if there is one, and deals with its loss."""
        if self._connection is None:
            return False
        try:
            return fn(self._connection)
        except OSError as error:
            self._lose(error)
            return True

    def _connect(self) -> None:
        if self._connection:  # which was not ready in time
            self._connection.close()
        self._connection = None
        self._next_try = time.monotonic() + self._delay_s
        self._delay_s = min(2 * self._delay_s, _RECONNECT_MAX_S)
        try:
            self._connection = ZmtpConnection(self._path)
            self._next_try = time.monotonic() + _HANDSHAKE_S
        except OSError:
            pass  # nobody listens yet

    def _lose(self, error: OSError) -> None:
        assert self._connection
        self._connection.close()
        self._connection = None
        if not self.connected:
            self._limited_log.warning("handshake", f"{self.peer} broke the connection off: {error}")
            return
        self._next_try = 0.0
        again, lost = self._note_lost()
        self._outbox.extendleft(reversed(again))
        self._fail_lost(lost)

    def _read(self, connection: ZmtpConnection, *, blocking: bool) -> bool:
        connection.flush()
        messages = connection.read(blocking=blocking)
        if connection.is_ready and not self.connected:
            self._delay_s = _RECONNECT_S
            self._note_connected()
            self._send_calls(connection)
        for frames in messages:
            self._read_answer(frames)
        return bool(messages)

    def _send_calls(self, connection: ZmtpConnection) -> bool:
        """Sends the calls that wait."""
        while self._outbox:
            future = self._outbox.popleft()
            frames = future.payload
            if frames is not None:  # else the call was given up meanwhile
                future.is_sent = True  # also if it breaks off halfway
                self._bytes_out += sum(map(len, frames))
                connection.send(frames)
        return True

    def _wait(self, until: float) -> None:
        poll = select.poll()
        poll.register(self._wakeup.fd, select.POLLIN)
        if self._connection:
            poll.register(self._connection.fd, self._connection.events)
        if not self.connected:
            until = min(until, self._next_try)
        poll.poll(None if until == math.inf else max(0, math.ceil(1000 * (until - time.monotonic()))))
