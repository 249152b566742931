"""The client's side of the interface: calls in flight, deadlines, and what a lost connection does to calls.

An engine subclasses `Client`: it sends what `_submit` gives it, and reports through `_finish`, `_note_connected`,
`_note_lost` and `_fail_lost`, from a thread of its own unless it overrides how to wait.
"""

import abc
import itertools
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from dreamfleet import lifecycle
from dreamfleet.errors import Closed, DeadlineExceeded, Disconnected
from dreamfleet.rpc.counters import Counters
from dreamfleet.rpc.future import Future
from dreamfleet.rpc.limited_log import LimitedLog
from dreamfleet.rpc.messages import Failure, Reply

_BRIEF_S = 0.2  # shorter waits are not worth telling the supervisor about


class Prepared:
    """A call that is made again and again; its caller writes to the arrays of `data` between one and the next.

    After a call that failed nobody knows what is still on its way: then prepare another one.
    """

    def __init__(self, call: Callable[..., Any], method: str, data: Any, meta: dict[str, Any] | None):
        self._call, self._method, self.data, self._meta = call, method, data, meta

    def ask(self, timeout_s: float) -> Any:
        """Makes the call; returns the data of its reply, or raises as `Future.result` does."""
        return self._call(self._method, self.data, meta=self._meta).result(timeout_s)


class Client(abc.ABC):
    """Calls the methods of one server; connects again by itself when the connection is lost."""

    def __init__(self, name: str, peer: str, max_inflight: int):
        self.name = name
        self.peer = peer
        self.connected = False
        self.connections = 0  # how often a connection was made
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._waiters = 0  # threads that wait for a change
        self._max_inflight = max_inflight
        self._inflight: dict[int, Future] = {}  # by number, in the order of the calls
        self._numbers = itertools.count()
        self._counters = Counters("late_replies", "lost_calls")
        self._bytes_in = self._bytes_out = 0  # changed only by the thread that owns the connection
        self._limited_log = LimitedLog(name)
        self._is_closed = False

    def call(
        self,
        method: str,
        data: Any = None,
        *,
        meta: dict[str, Any] | None = None,
        repeat: bool = False,
        deadline_s: float | None = None,
    ) -> Future:
        """Sends a call, as soon as fewer than `max_inflight` are unanswered and there is a connection.

        After a lost connection a call with `repeat` is sent again; the future of any other raises `Disconnected`.
        """
        deadline = math.inf if deadline_s is None else time.monotonic() + deadline_s
        number = next(self._numbers)
        return self._start(Future(self, number, method, self._encode(number, method, data, meta), repeat, deadline))

    def prepare(self, method: str, data: Any, meta: dict[str, Any] | None = None) -> "Prepared":
        """A call to be made again and again, with other contents of the arrays in its data."""
        return Prepared(self.call, method, data, meta)

    def wait_connected(self, timeout_s: float | None = None) -> bool:
        """Blocks until there is a connection; returns whether there is one."""
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        with lifecycle.waiting(f"{self.peer}: connection"):
            self._block(lambda: self.connected or self._is_closed, until)
        return self.connected

    def stats(self) -> dict[str, float]:
        """Rates, mean answer times and depths since the last call."""
        stats = self._counters.take(self._bytes_in, self._bytes_out)
        return stats | {"inflight": len(self._inflight), "connections": self.connections}

    def close(self) -> None:
        """Ends the connection; whoever waits for an answer gets `Closed`. May be called from any thread."""
        with self.lock:
            if self._is_closed:
                return
            self._is_closed = True
            numbers = list(self._inflight)
            self._changed.notify_all()
        for number in numbers:
            self._finish(number, Closed(f"the connection to {self.peer} was closed during the call"))
        self._hang_up()
        self.connected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def _encode(self, number: int, method: str, data: Any, meta: dict[str, Any] | None) -> Any:
        """What the future keeps until it is sent; raises `TypeError` for data that cannot travel."""

    @abc.abstractmethod
    def _submit(self, future: Future) -> None: ...

    @abc.abstractmethod
    def _hang_up(self) -> None: ...

    def advance(self) -> None:
        """Takes in answers that have arrived, where no thread of the engine does it."""
        return

    def wait_for(self, future: Future, timeout_s: float | None) -> None:
        """Blocks until the future is done; raises `DeadlineExceeded` after `timeout_s` or its own deadline."""
        now = time.monotonic()
        until = future.deadline if timeout_s is None else min(future.deadline, now + timeout_s)
        if self._await(future, min(until, now + _BRIEF_S)):
            return
        with lifecycle.waiting(f"{self.peer}.{future.method}"):
            if self._await(future, until):
                return
        seconds = time.monotonic() - future.started
        state = "" if self.connected else ", and there is no connection"
        error = DeadlineExceeded(f"{self.peer}.{future.method} has not answered for {seconds:.1f} s{state}")
        if time.monotonic() < future.deadline:
            raise error
        self._finish(future.number, error)

    def _await(self, future: Future, until: float) -> bool:
        return future.wait(until)

    def _block(self, is_ready: Callable[[], bool], until: float) -> bool:
        with self.lock:
            self._waiters += 1
            try:
                return self._changed.wait_for(is_ready, None if until == math.inf else until - time.monotonic())
            finally:
                self._waiters -= 1

    def _start(self, future: Future) -> Future:
        while not self._enter(future):
            self._wait_for_room(future)
        self._submit(future)
        return future

    def _enter(self, future: Future) -> bool:
        """Puts a call in flight if there is room for it."""
        with self.lock:
            if self._is_closed:
                raise Closed(f"the connection to {self.peer} is closed")
            if not self._has_room():
                return False
            self._inflight[future.number] = future
            return True

    def _has_room(self) -> bool:
        return len(self._inflight) < self._max_inflight

    def _wait_for_room(self, future: Future) -> None:
        others = list(self._inflight.values())
        for other in others:
            if other.deadline <= time.monotonic():
                self._finish(other.number, DeadlineExceeded(f"{self.peer}.{other.method} did not answer in time"))
        with lifecycle.waiting(f"{self.peer}: room for {future.method}"):
            until = min([future.deadline, *[other.deadline for other in others]])
            self._block(lambda: self._has_room() or self._is_closed, until)
        if future.deadline <= time.monotonic() and not self._has_room():
            seconds = time.monotonic() - future.started
            reason = f"{self._max_inflight} calls of {self.peer} are unanswered"
            raise DeadlineExceeded(f"{self.peer}: no room for {future.method} within {seconds:.1f} s, {reason}")

    def _finish(self, number: int, outcome: Reply | Failure | Exception) -> None:
        """Settles a call that is in flight; anything else is a late answer."""
        with self.lock:
            future = self._inflight.pop(number, None)
            if future is not None:
                if isinstance(outcome, Reply):
                    future.settle(outcome, None)
                else:
                    future.settle(None, outcome.to_error() if isinstance(outcome, Failure) else outcome)
                if self._waiters:
                    self._changed.notify_all()
        if future is None:
            self._counters.add("late_replies")
            return
        self._counters.add_calls(future.method, 1, time.monotonic() - future.started, 0.0)
        future.run_callbacks()

    def _note_connected(self) -> None:
        with self.lock:
            self.connected = True
            self.connections += 1
            self._changed.notify_all()

    def _note_lost(self) -> tuple[list[Future], list[Future]]:
        """The calls that were lost with the connection: those to send again, oldest first, and those that fail.

        The engine calls this under the lock that it sends with, and `_fail_lost` without it.
        """
        with self.lock:
            self.connected = False
            lost = [future for future in self._inflight.values() if future.is_sent]
        for future in lost:
            future.is_sent = False
        return [future for future in lost if future.repeat], [future for future in lost if not future.repeat]

    def _fail_lost(self, futures: list[Future]) -> None:
        for future in futures:
            self._counters.add("lost_calls")
            self._finish(future.number, Disconnected(f"{self.peer} was lost during {future.method}"))
