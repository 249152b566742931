"""The calls of a client that are in flight, and what becomes of them; the client's engine reports to it."""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dreamfleet.errors import Closed, DeadlineExceeded, Disconnected
from dreamfleet.rpc.counters import Counters
from dreamfleet.rpc.limited_log import LimitedLog
from dreamfleet.rpc.messages import Failure, Reply

if TYPE_CHECKING:
    from dreamfleet.rpc.client import Client

_log = logging.getLogger("dreamfleet.rpc")


class Future:
    """Gives the reply or raises what went wrong; arrays that were sent may be changed again once it is done."""

    __slots__ = (
        *("_callbacks", "_client", "_error", "_gate", "_is_done", "_reply"),
        *("deadline", "is_sent", "method", "number", "payload", "repeat", "started"),
    )

    def __init__(self, client: "Client", number: int, method: str, payload: Any, repeat: bool, deadline: float):
        self.number = number
        self.method, self.repeat, self.deadline = method, repeat, deadline
        self.payload: Any = payload  # what the engine sends; None once the call is done
        self.is_sent = False
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
        fn(self)

    def settle(self, reply: Reply | None, error: Exception | None) -> None:
        """Makes the outcome known; for the client, once, under its lock."""
        self._reply, self._error = reply, error
        self.payload = None
        self._is_done = True
        self._gate.release()

    def run_callbacks(self) -> None:
        """For the client, after `settle` and without its lock."""
        for fn in self._callbacks:
            try:
                fn(self)
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
    """The calls that are unanswered, by number and in their order, and whether there is a connection."""

    def __init__(self, name: str, peer: str, max_inflight: int):
        self.name, self.peer, self.max_inflight = name, peer, max_inflight
        self.lock = threading.Lock()
        self.inflight: dict[int, Future] = {}
        self.connected = False
        self.connections = 0  # how often a connection was made
        self.is_closed = False
        self.counters = Counters("late_replies", "lost_calls")
        self.log = LimitedLog(name)
        self._changed = threading.Condition(self.lock)
        self._waiters = 0  # threads that wait for a change

    def enter(self, future: Future) -> bool:
        """Puts a call in flight if there is room for it."""
        with self.lock:
            if self.is_closed:
                raise Closed(f"the connection to {self.peer} is closed")
            if not self.has_room():
                return False
            self.inflight[future.number] = future
            return True

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

    def note_connected(self) -> None:
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
            lost = [future for future in self.inflight.values() if future.is_sent]
        for future in lost:
            future.is_sent = False
        return [future for future in lost if future.repeat], [future for future in lost if not future.repeat]

    def fail_lost(self, futures: list[Future]) -> None:
        for future in futures:
            self.counters.add("lost_calls")
            self.finish(future.number, Disconnected(f"{self.peer} was lost during {future.method}"))

    def refuse_all(self, reason: str) -> None:
        """Fails every call, as the server can never answer it."""
        for future in list(self.inflight.values()):
            self.finish(future.number, Failure(self.peer, future.method, reason, is_refusal=True))

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
