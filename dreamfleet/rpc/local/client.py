"""The local engine of a client: with a thread that reads answers, or without."""

import collections
import contextlib
import math
import select
import threading
import time
from collections.abc import Callable

from dreamfleet.base.addresses import Address
from dreamfleet.errors import BadRequest
from dreamfleet.rpc import wire
from dreamfleet.rpc.calls import Calls, Future
from dreamfleet.rpc.io_thread import Wakeup, start_io_thread
from dreamfleet.rpc.local.connection import READ_S, Connection, OtherFormat, make_socket
from dreamfleet.rpc.messages import Failure, Reply

_RECONNECT_S, _RECONNECT_MAX_S = 0.02, 0.5


class Link:
    """The way to one server: calls are sent on the threads of the callers; one thread at a time calls `turn`."""

    def __init__(self, addr: Address, calls: Calls, encoder: wire.RequestEncoder, greeting_s: float):
        self._encoder = encoder
        self._has_begun = False  # has presented itself over this connection
        self.wakeup = Wakeup()
        self.connection: Connection | None = None
        self._path, self._calls = addr.path, calls
        self._send_lock = threading.Lock()  # guards the outbox, and whether there is a connection
        self._outbox: collections.deque[Future] = collections.deque()  # calls that wait for a connection
        self._greeting_s = greeting_s  # for the server to greet
        self._delay_s = _RECONNECT_S
        self._next_try = 0.0  # to connect

    def submit(self, future: Future) -> None:
        with self._send_lock:
            self._outbox.append(future)
            if self._calls.connected:
                self._send_calls()

    def turn(self, *, blocking: bool = False) -> bool:
        """Connects, sends and reads as far as that is possible at once; returns whether anything has happened."""
        if not self._calls.connected and time.monotonic() >= self._next_try:
            self._connect()
        connection = self.connection
        if connection is None:
            return False
        try:
            connection.flush()
            answers = self.read(connection, blocking=blocking and not connection.unsent)
        except OSError as error:
            self.lose(error)
            return True
        if connection.is_ready and not self._has_begun:
            self._begin(connection)
        for number, outcome in answers:
            self._calls.finish(number, outcome)
        return bool(answers)

    def read(self, connection: Connection, *, blocking: bool) -> list[tuple[int, Reply | Failure | BadRequest]]:
        """Answers that have arrived: the numbers of their calls, and what came of these."""
        answers = []
        for frames in connection.read(blocking=blocking):
            self._calls.counters.bytes_in += sum(map(len, frames))
            number, outcome = wire.read_answer(frames)
            if isinstance(outcome, BadRequest):
                self._calls.warn_unreadable(outcome)
            answers.append((number, outcome))
        return answers

    def wait(self, until: float) -> None:
        """Waits until a turn is worth while, or a monotonic time."""
        poll = select.poll()
        poll.register(self.wakeup.fd, select.POLLIN)
        if self.connection:
            poll.register(self.connection.fd, self.connection.events)
        if not self._calls.connected:
            until = min(until, self._next_try)
        timeout_ms = None if until == math.inf else max(0, math.ceil(1000 * (until - time.monotonic())))
        if self.wakeup.fd in dict(poll.poll(timeout_ms)):
            self.wakeup.clear()

    def lose(self, error: OSError) -> None:
        """Handles the end of the connection."""
        self.disconnect()
        if not self._calls.connected:
            if not self._has_begun:
                self._calls.log.warning("handshake", f"{self._calls.peer} broke the connection off: {error}")
            if isinstance(error, OtherFormat):
                with self._send_lock:
                    self._outbox.clear()
                self._calls.refuse_all(Failure(self._calls.peer, "connect", str(error), is_refusal=True).to_error())
            return
        self._next_try = 0.0
        with self._send_lock:  # a call that goes out right now is either lost, or not sent yet
            again, lost = self._calls.note_lost()
            self._outbox.extendleft(reversed(again))
        self._calls.fail_lost(lost)

    def disconnect(self) -> None:
        if self.connection:
            self.connection.close()
        self.connection = None

    def _begin(self, connection: Connection) -> None:
        self._has_begun, self._delay_s = True, _RECONNECT_S
        frames = self._calls.begin(self._encoder, self._open)
        if frames is not None:
            self._next_try = time.monotonic() + self._greeting_s  # by then it is accepted, or greets anew
            with contextlib.suppress(OSError):  # whoever reads notices too
                connection.send(frames)

    def _open(self) -> None:
        with self._send_lock:
            self._calls.note_connected()
            self._send_calls()

    def _connect(self) -> None:
        self.disconnect()  # from a server that did not greet in time, or did not accept us
        self._has_begun = False
        self._next_try = time.monotonic() + self._delay_s
        self._delay_s = min(2 * self._delay_s, _RECONNECT_MAX_S)
        connected = make_socket()
        try:
            connected.connect(self._path)
            self.connection = Connection(connected, wire.MAX_REPLY_BYTES)
            self._next_try = time.monotonic() + self._greeting_s
        except OSError:  # nobody listens yet
            connected.close()

    def _send_calls(self) -> None:
        """Sends the calls that wait."""
        connection = self.connection
        while self._outbox and connection:
            future = self._outbox.popleft()
            frames = future.payload
            if frames is not None:  # else the call was given up meanwhile
                future.is_sent = True
                self._calls.counters.bytes_out += sum(map(len, frames))
                with contextlib.suppress(OSError):  # whoever reads notices too, and finds the call among those lost
                    connection.send(frames)


class ThreadedLocalEngine:
    """Reads answers in a thread of its own."""

    def __init__(self, addr: Address, calls: Calls, *, protocol: int, greeting_s: float):
        self.encoder = wire.RequestEncoder(protocol)
        self._link = Link(addr, calls, self.encoder, greeting_s)
        self._thread = start_io_thread(calls.name, calls.log, lambda: calls.is_closed, self._step, self._end)

    def submit(self, future: Future) -> None:
        self._link.submit(future)
        if (connection := self._link.connection) and connection.unsent:
            self._link.wakeup.set()

    def close(self) -> None:
        self._link.wakeup.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _step(self) -> None:
        if not self._link.turn():
            self._link.wait(math.inf)

    def _end(self) -> None:
        self._link.disconnect()
        self._link.wakeup.close()


class InlineLocalEngine:
    """For one thread with one call in flight at a time: it does everything itself, which is fastest."""

    def __init__(self, addr: Address, calls: Calls, *, protocol: int, greeting_s: float):
        self.encoder = wire.RequestEncoder(protocol)
        self._calls = calls
        self._link = Link(addr, calls, self.encoder, greeting_s)
        self._turn_lock = threading.Lock()  # `close` may come from another thread

    def submit(self, future: Future) -> None:
        self._link.submit(future)

    def close(self) -> None:
        self._link.wakeup.set()
        with self._turn_lock:
            self._link.disconnect()
        self._link.wakeup.close()

    def exchange(self, future: Future, timeout_s: float) -> bool:
        calls = self._calls
        with self._turn_lock:
            connection = self._link.connection
            is_free = calls.connected and not calls.inflight and future.connection in (None, calls.connections)
            if not connection or not is_free or timeout_s <= READ_S:
                return False
            answers, lost = [], None
            try:
                calls.counters.bytes_out += sum(map(len, future.payload))
                connection.send(future.payload)
                answers = self._link.read(connection, blocking=not connection.unsent)
            except OSError as error:
                lost = error
            if len(answers) == 1 and answers[0][0] == future.number and isinstance(reply := answers[0][1], Reply):
                future.settle(reply, None)
                calls.counters.add_calls(future.method, 1, time.monotonic() - future.started, 0.0)
                return True
            future.is_sent = True
            calls.enter(future)  # as any other call, because it was not answered by what was read first
            for number, outcome in answers:
                calls.finish(number, outcome)
            if lost:
                self._link.lose(lost)
            return True

    def advance(self) -> None:
        with self._turn_lock:
            if not self._calls.is_closed:
                self._link.turn()

    def wait_answer(self, future: Future, until: float) -> bool:
        with self._turn_lock:
            # Most answers come soon, and waiting for them in the socket is the fastest way.
            if future.is_sent and not self._calls.is_closed and until - time.monotonic() > READ_S:
                self._link.turn(blocking=True)
            return self._turn_until(future.is_settled, until)

    def wait(self, is_ready: Callable[[], bool], until: float) -> bool:
        with self._turn_lock:
            return self._turn_until(is_ready, until)

    def _turn_until(self, is_ready: Callable[[], bool], until: float) -> bool:
        while not is_ready() and not self._calls.is_closed:
            if not self._link.turn() and not is_ready():
                if time.monotonic() >= until:
                    return False
                self._link.wait(until)
        return is_ready()
