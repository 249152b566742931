"""The calls of a client that are in flight, and what becomes of them; the client's engine reports to it."""

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dreamfleet.errors import Closed, DeadlineExceeded, Disconnected, RpcError
from dreamfleet.rpc.counters import Counters
from dreamfleet.rpc.engine import CallEncoder, Greeting
from dreamfleet.rpc.limited_log import LimitedLog
from dreamfleet.rpc.messages import Failure, Reply

if TYPE_CHECKING:
    from dreamfleet.rpc.client import Client

_log = logging.getLogger("dreamfleet.rpc")

GREET_AGAIN_S = 3.0  # after a greeting that was not accepted, or not answered
_FIRST_GREETING = 1 << 63  # numbers of greetings; those of calls begin at 0


class Future:
    """Gives the reply or raises what went wrong; arrays that were sent may be changed again once it is done."""

    __slots__ = (
        *("_callbacks", "_client", "_error", "_gate", "_is_done", "_reply"),
        *("connection", "deadline", "is_sent", "method", "number", "payload", "repeat", "started"),
    )

    def __init__(self, client: "Client", number: int, method: str, payload: Any, repeat: bool, deadline: float):
        self.number = number
        self.method, self.repeat, self.deadline = method, repeat, deadline
        self.payload: Any = payload  # what the engine sends; None once the call is done
        self.is_sent = False
        self.connection: int | None = None  # the only one to send it over; once it is done, the one that it was
        self.started = time.monotonic()
        self._client = client
        self._gate = threading.Lock()  # held until done
        self._gate.acquire()
        self._is_done = False
        self._reply: Reply | None = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Future], None]] = []

    @property
    def meta(self) -> dict[str, Any]:
        """Metadata of the reply, once it is there."""
        return self._reply.meta if self._reply else {}

    def done(self) -> bool:
        """Whether `result` will not block."""
        if not self._is_done:
            self._client.advance()
        return self._is_done

    def result(self, timeout_s: float | None = None) -> Any:
        """The data of the reply; raises the error of the call, or `DeadlineExceeded` after `timeout_s`."""
        if not self._is_done:
            self._client.wait_for(self, timeout_s)
        if self._error:
            raise self._error
        assert self._reply
        return self._reply.data

    def add_done_callback(self, fn: Callable[["Future"], None]) -> None:
        """Calls `fn(future)` in the I/O thread when done, or here if it already is; it must not block."""
        with self._client.lock:
            if not self._is_done:
                self._callbacks.append(fn)
                return
        self._run(fn)

    def settle(self, reply: Reply | None, error: Exception | None) -> None:
        """Makes the outcome known; for the client, once, under its lock."""
        self._reply, self._error = reply, error
        self.connection = self._client.calls.connections
        self.payload = None
        self._is_done = True
        self._gate.release()

    def run_callbacks(self) -> None:
        """For the client, after `settle` and without its lock."""
        for fn in self._callbacks:
            self._run(fn)

    def _run(self, callback: Callable[["Future"], None]) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("a callback of %s failed", self.method)

    def is_settled(self) -> bool:
        return self._is_done

    def wait(self, until: float) -> bool:
        """Blocks until another thread settles it, up to a monotonic time or infinity; returns whether it did."""
        if self._gate.acquire(timeout=-1 if until == math.inf else max(0.0, until - time.monotonic())):
            self._gate.release()
        return self._is_done


class Calls:
    """The calls that are unanswered, by number and in their order, and whether there is a connection.

    With a greeting there is one when the other side has accepted it.
    """

    def __init__(
        self, name: str, peer: str, max_inflight: int, greeting: Greeting | None = None, *, is_quiet: bool = False
    ):
        self.greeting = greeting
        self.greet_at = math.inf  # when to greet again, unless there is a connection
        self.refusal: RpcError | None = None  # why there will never be one
        self._greetings = itertools.count(_FIRST_GREETING)
        self._greeting_number: int | None = None  # of the one that is not answered yet
        self._open: Callable[[], None] = lambda: None
        self.name, self.peer, self.max_inflight = name, peer, max_inflight
        self.lock = threading.Lock()
        self.inflight: dict[int, Future] = {}
        self.connected = False
        self.is_plain: bool | None = False  # whether the server is a program of others; None while that is not known
        self.connections = 0  # how often a connection was made
        self.is_closed = False
        self.counters = Counters("late_replies", "lost_calls")
        self.log = LimitedLog(name, is_quiet=is_quiet)
        self._changed = threading.Condition(self.lock)
        self._waiters = 0  # threads that wait for a change

    def enter(self, future: Future) -> bool:
        """Puts a call in flight if there is room for it."""
        with self.lock:
            if self.is_closed:
                raise Closed(f"the connection to {self.peer} is closed")
            if self.refusal:
                raise self.refusal
            if not self.can_carry(future):
                raise Disconnected(f"{self.peer} was lost before {future.method}")
            if not self.has_room():
                return False
            self.inflight[future.number] = future
            return True

    def can_carry(self, future: Future) -> bool:
        """Whether the connection that a call has to be sent over is still there; any other call may wait for one."""
        return future.connection is None or (self.connected and future.connection == self.connections)

    def is_decided(self) -> bool:
        """Whether there is a connection, or will never be one."""
        return self.connected or self.is_closed or self.refusal is not None

    def has_room(self) -> bool:
        return len(self.inflight) < self.max_inflight

    def wait(self, is_ready: Callable[[], bool], until: float) -> bool:
        """Blocks until a change makes `is_ready` true, up to a monotonic time or infinity."""
        with self.lock:
            self._waiters += 1
            try:
                return self._changed.wait_for(is_ready, None if until == math.inf else until - time.monotonic())
            finally:
                self._waiters -= 1

    def finish(self, number: int, outcome: Reply | Failure | Exception) -> None:
        """Settles a call that is in flight; anything else is a late answer."""
        if number == self._greeting_number:
            self._finish_greeting(outcome)
            return
        with self.lock:
            future = self.inflight.pop(number, None)
            if future is not None:
                if isinstance(outcome, Reply):
                    future.settle(outcome, None)
                else:
                    future.settle(None, outcome.to_error() if isinstance(outcome, Failure) else outcome)
                if self._waiters:
                    self._changed.notify_all()
        if future is None:
            self.counters.add("late_replies")
            return
        self.counters.add_calls(future.method, 1, time.monotonic() - future.started, 0.0)
        future.run_callbacks()

    def finish_overdue(self) -> float:
        """Gives up the calls whose deadline has passed; returns the next deadline of the others."""
        others = list(self.inflight.values())
        for other in others:
            if other.deadline <= time.monotonic():
                self.finish(other.number, DeadlineExceeded(f"{self.peer}.{other.method} did not answer in time"))
        return min([other.deadline for other in others], default=math.inf)

    def begin(self, encoder: CallEncoder, open_: Callable[[], None]) -> Any:
        """For the engine, when it can send, and again at `greet_at`: what it has to send first, if anything.

        `open_` is called when calls may follow.
        """
        if self.greeting is None:
            open_()
            return None
        self.greet_at, self._open = time.monotonic() + GREET_AGAIN_S, open_
        self._greeting_number = number = next(self._greetings)
        return encoder.encode(number, self.greeting.method, self.greeting.present(), None)

    def _finish_greeting(self, outcome: Reply | Failure | Exception) -> None:
        assert self.greeting
        self._greeting_number = None
        try:
            if not isinstance(outcome, Reply):
                raise outcome.to_error() if isinstance(outcome, Failure) else outcome
            self.greeting.accept(outcome.data)
        except RpcError as error:
            if self.greeting.is_final(error):
                self._refuse_for_good(error)
            else:
                self.log.warning("greeting", f"{self.peer} was not accepted, trying again: {error}")
        else:
            self._open()

    def note_connected(self) -> None:
        self.greet_at = math.inf
        with self.lock:
            self.connected = True
            self.connections += 1
            self._changed.notify_all()

    def note_lost(self) -> tuple[list[Future], list[Future]]:
        """The calls that were lost with the connection: those to send again, oldest first, and those that fail.

        The engine calls this under the lock that it sends with, and `fail_lost` without it.
        """
        with self.lock:
            self.connected = False
            lost = [future for future in self.inflight.values() if future.is_sent or future.connection is not None]
        for future in lost:
            future.is_sent = False
        return [future for future in lost if future.repeat], [future for future in lost if not future.repeat]

    def fail_lost(self, futures: list[Future]) -> None:
        for future in futures:
            self.counters.add("lost_calls")
            self.finish(future.number, Disconnected(f"{self.peer} was lost during {future.method}"))

    def refuse_all(self, error: RpcError) -> None:
        """Fails every call that waits, as the server that is there cannot answer it."""
        for number in list(self.inflight):
            self.finish(number, error)

    def _refuse_for_good(self, error: RpcError) -> None:
        with self.lock:
            self.refusal, self.greet_at = error, math.inf
            self._changed.notify_all()
        self.refuse_all(error)

    def warn_unreadable(self, reason: object) -> None:
        self.log.warning("answer", f"{self.peer} sent an answer that cannot be read: {reason}")

    def close(self) -> bool:
        """Gives up all calls with `Closed`, and wakes who waits; returns whether it was open."""
        with self.lock:
            if self.is_closed:
                return False
            self.is_closed = True
            numbers = list(self.inflight)
            self._changed.notify_all()
        for number in numbers:
            self.finish(number, Closed(f"the connection to {self.peer} was closed during the call"))
        return True
