"""The clients of a `LocalServer`, on the same machine: with a thread that reads answers, or without."""

import collections
import contextlib
import math
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from dreamfleet.rpc import address, codec
from dreamfleet.rpc.future import Future
from dreamfleet.rpc.messages import Reply
from dreamfleet.rpc.wakeup import Wakeup
from dreamfleet.rpc.wire_client import MAX_REPLY_BYTES, WireClient
from dreamfleet.rpc.zmtp import READ_S, ZmtpConnection, make_socket

_RECONNECT_S, _RECONNECT_MAX_S = 0.02, 0.5
_HANDSHAKE_S = 5.0


class LocalClient(WireClient):
    """Sends on the threads of the callers; one thread at a time connects and reads, by calling `_turn`."""

    def __init__(self, addr: str, name: str, *, peer: str, max_inflight: int):
        super().__init__(name, peer, max_inflight)
        self._path = address.check_ipc(addr).removeprefix("ipc:")
        self._wakeup = Wakeup()
        self._send_lock = threading.Lock()  # guards the outbox, and whether there is a connection
        self._outbox: collections.deque[Future] = collections.deque()  # calls that wait for a connection
        self._connection: ZmtpConnection | None = None
        self._delay_s = _RECONNECT_S
        self._next_try = 0.0  # to connect

    def _submit(self, future: Future) -> None:
        with self._send_lock:
            self._outbox.append(future)
            if self.connected:
                self._send_calls()

    def _turn(self, *, blocking: bool = False) -> bool:
        """Connects, sends and reads as far as that is possible at once; returns whether anything has happened."""
        if not self.connected and time.monotonic() >= self._next_try:
            self._connect()
        connection = self._connection
        if connection is None:
            return False
        try:
            connection.flush()
            messages = connection.read(blocking=blocking and not connection.unsent)
        except OSError as error:
            self._lose(error)
            return True
        if connection.is_ready and not self.connected:
            self._delay_s = _RECONNECT_S
            with self._send_lock:
                self._note_connected()
                self._send_calls()
        for frames in messages:
            self._read_answer(frames)
        return bool(messages)

    def _wait(self, until: float) -> None:
        """Waits until a turn is worth while, or a monotonic time."""
        poll = select.poll()
        poll.register(self._wakeup.fd, select.POLLIN)
        if self._connection:
            poll.register(self._connection.fd, self._connection.events)
        if not self.connected:
            until = min(until, self._next_try)
        timeout_ms = None if until == math.inf else max(0, math.ceil(1000 * (until - time.monotonic())))
        if self._wakeup.fd in dict(poll.poll(timeout_ms)):
            self._wakeup.clear()

    def _connect(self) -> None:
        self._disconnect()  # from a server that did not answer in time
        self._next_try = time.monotonic() + self._delay_s
        self._delay_s = min(2 * self._delay_s, _RECONNECT_MAX_S)
        connected = make_socket()
        try:
            connected.connect(self._path)
            self._connection = ZmtpConnection(connected, b"DEALER", MAX_REPLY_BYTES)
            self._next_try = time.monotonic() + _HANDSHAKE_S
        except OSError:  # nobody listens yet
            connected.close()

    def _lose(self, error: OSError) -> None:
        self._disconnect()
        if not self.connected:
            self._limited_log.warning("handshake", f"{self.peer} broke the connection off: {error}")
            return
        self._next_try = 0.0
        with self._send_lock:  # a call that goes out right now is either lost, or not sent yet
            again, lost = self._note_lost()
            self._outbox.extendleft(reversed(again))
        self._fail_lost(lost)

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None

    def _send_calls(self) -> None:
        """Sends the calls that wait."""
        connection = self._connection
        while self._outbox and connection:
            future = self._outbox.popleft()
            frames = future.payload
            if frames is not None:  # else the call was given up meanwhile
                future.is_sent = True
                self._bytes_out += sum(map(len, frames))
                with contextlib.suppress(OSError):  # whoever reads notices too, and finds the call among those lost
                    connection.send(frames)


class ThreadedLocalClient(LocalClient):
    """Reads answers in a thread of its own."""

    def __init__(self, addr: str, name: str, *, peer: str, max_inflight: int):
        super().__init__(addr, name, peer=peer, max_inflight=max_inflight)
        self._thread = threading.Thread(target=self._read_loop, name=f"{name}-rpc-io", daemon=True)
        self._thread.start()

    def _submit(self, future: Future) -> None:
        super()._submit(future)
        if (connection := self._connection) and connection.unsent:
            self._wakeup.set()

    def _hang_up(self) -> None:
        self._wakeup.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _read_loop(self) -> None:
        while not self._is_closed:
            try:
                if not self._turn():
                    self._wait(math.inf)
            except Exception as error:
                self._limited_log.error(f"io/{type(error).__name__}", f"error in the I/O thread: {error!r}")
        self._disconnect()
        self._wakeup.close()


class InlineLocalClient(LocalClient):
    """For one thread with one call in flight at a time: it does everything itself, which is fastest."""

    def __init__(self, addr: str, name: str, *, peer: str, max_inflight: int):
        super().__init__(addr, name, peer=peer, max_inflight=max_inflight)
        self._turn_lock = threading.Lock()  # `close` may come from another thread

    def advance(self) -> None:
        with self._turn_lock:
            if not self._is_closed:
                self._turn()

    def exchange(self, method: str, frames: list[codec.Buffer], timeout_s: float) -> Any:
        future = self._number(method, frames)
        with self._turn_lock:
            connection = self._connection if self.connected and not self._inflight and timeout_s > READ_S else None
            if connection and (reply := self._exchange_at_once(connection, future, frames)):
                return reply.data
        return (future if connection else self._start(future)).result(timeout_s)

    def _await(self, future: Future, until: float) -> bool:
        with self._turn_lock:
            # Most answers come soon, and waiting for them in the socket is the fastest way.
            if future.is_sent and not self._is_closed and until - time.monotonic() > READ_S:
                self._turn(blocking=True)
            return self._turn_until(future.is_settled, until)

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

    def _exchange_at_once(self, connection: ZmtpConnection, future: Future, frames: list[codec.Buffer]) -> Reply | None:
        """Sends a call and reads once, which mostly brings the reply; if not, the call is in flight as any other."""
        answers, lost = [], None
        try:
            self._bytes_out += sum(map(len, frames))
            connection.send(frames)
            answers = [self._decode_answer(message) for message in connection.read(blocking=not connection.unsent)]
        except OSError as error:
            lost = error
        if len(answers) == 1 and answers[0][0] == future.number and isinstance(reply := answers[0][1], Reply):
            self._counters.add_calls(future.method, 1, time.monotonic() - future.started, 0.0)
            return reply
        future.is_sent = True
        self._enter(future)
        for number, outcome in answers:
            self._finish(number, outcome)
        if lost:
            self._lose(lost)
        return None

    def _hang_up(self) -> None:
        self._wakeup.set()
        with self._turn_lock:
            self._disconnect()
        self._wakeup.close()
