"""The client of a server: calls and their futures, room for them, deadlines, and what is told of long waits."""

import itertools
import math
import time
from collections.abc import Callable, Collection
from typing import Any, Self

from dreamfleet import lifecycle
from dreamfleet.base import waits
from dreamfleet.errors import DeadlineExceeded
from dreamfleet.rpc.calls import Calls, Future
from dreamfleet.rpc.engine import ClientEngine, InlineClientEngine

_BRIEF_S = 0.2  # shorter waits are not worth telling the supervisor about


class Prepared:
    """A call that is made again and again; its caller writes to the arrays of `data` between one and the next.

    All go over one connection. After it was lost the next one raises `Disconnected`, since whoever is there by then
    need not know of those before. After a call that failed nobody knows what is still on its way: then prepare
    another one.
    """

    def __init__(self, ask: Callable[[float], Any], data: Any):
        self.ask = ask  # makes the call; returns the data of its reply, or raises as `Future.result` does
        self.data = data


class Client:
    """Calls the methods of one server; connects again by itself when the connection is lost.

    An engine without a thread is given as `inline` too: then the thread that waits for an answer moves the data.
    Calls of the methods in `repeated` are sent again after a lost connection.
    """

    def __init__(
        self,
        calls: Calls,
        engine: ClientEngine,
        inline: InlineClientEngine | None = None,
        repeated: Collection[str] = (),
    ):
        self.name, self.peer, self.lock = calls.name, calls.peer, calls.lock
        self.calls, self._engine, self._inline = calls, engine, inline
        self.session = ""  # for the owner of the client: what it calls itself on the other side
        self._encoder = engine.encoder
        self._repeated = repeated
        self._numbers = itertools.count()

    @property
    def connected(self) -> bool:
        return self.calls.connected

    @property
    def is_plain(self) -> bool | None:
        """Whether the server is a plain portal program, which takes no metadata; None while that is not known."""
        return self.calls.is_plain

    @property
    def connections(self) -> int:
        """How often a connection was made."""
        return self.calls.connections

    def call(
        self,
        method: str,
        data: Any = None,
        *,
        meta: dict[str, Any] | None = None,
        repeat: bool | None = None,
        deadline_s: float | None = None,
    ) -> Future:
        """Sends a call, as soon as fewer than `max_inflight` are unanswered and there is a connection.

        After a lost connection a call with `repeat`, by default of a repeated method, is sent again; the future of any
        other raises `Disconnected`.
        """
        repeat = method in self._repeated if repeat is None else repeat
        deadline = math.inf if deadline_s is None else time.monotonic() + deadline_s
        number = next(self._numbers)
        payload = self._encoder.encode(number, method, data, meta)
        return self._start(Future(self, number, method, payload, repeat, deadline))

    def prepare(self, method: str, data: Any, meta: dict[str, Any] | None = None) -> Prepared:
        """A call to be made again and again, with other contents of the arrays in its data."""
        make_payload, data = self._encoder.prepare(method, data, meta)
        connection: int | None = None  # any, for the first call

        def ask(timeout_s: float) -> Any:
            nonlocal connection
            number = next(self._numbers)
            future = Future(self, number, method, make_payload(number), repeat=False, deadline=math.inf)
            future.connection = connection
            if not (self._inline and self._inline.exchange(future, timeout_s)):
                self._start(future)
            result = future.result(timeout_s)
            connection = future.connection
            return result

        return Prepared(ask, data)

    def wait_connected(self, timeout_s: float | None = None) -> bool:
        """Blocks until there is a connection; returns whether there is one, and raises why there will never be one."""
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        with lifecycle.waiting(waits.CONNECTION(peer=self.peer)):
            self._wait(self.calls.is_decided, until)
        if self.calls.refusal and not self.calls.is_closed:
            raise self.calls.refusal
        return self.calls.connected

    def stats(self) -> dict[str, float]:
        """Rates, mean answer times and depths since the last call."""
        calls = self.calls
        return calls.counters.take() | {"inflight": len(calls.inflight), "connections": calls.connections}

    def close(self) -> None:
        """Ends the connection; whoever waits for an answer gets `Closed`. May be called from any thread."""
        if self.calls.close():
            self._engine.close()
            self.calls.connected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def advance(self) -> None:
        """For futures: takes in answers that have arrived, where no thread of the engine does it."""
        if self._inline:
            self._inline.advance()

    def wait_for(self, future: Future, timeout_s: float | None) -> None:
        """For futures: blocks until one is done; raises `DeadlineExceeded` after `timeout_s` or its own deadline."""
        wait = self._inline.wait_answer if self._inline else Future.wait
        now = time.monotonic()
        until = future.deadline if timeout_s is None else min(future.deadline, now + timeout_s)
        if wait(future, min(until, now + _BRIEF_S)):
            return
        with lifecycle.waiting(waits.ANSWER(peer=self.peer, method=future.method)):
            if wait(future, until):
                return
        seconds = time.monotonic() - future.started
        state = "" if self.calls.connected else ", and there is no connection"
        error = DeadlineExceeded(f"{self.peer}.{future.method} has not answered for {seconds:.1f} s{state}")
        if time.monotonic() < future.deadline:
            raise error
        self.calls.finish(future.number, error)

    def _start(self, future: Future) -> Future:
        while not self.calls.enter(future):
            self._wait_for_room(future)
        self._engine.submit(future)
        return future

    def _wait_for_room(self, future: Future) -> None:
        calls = self.calls
        until = min(future.deadline, calls.finish_overdue())
        with lifecycle.waiting(waits.ROOM(peer=self.peer, method=future.method)):
            self._wait(lambda: calls.has_room() or calls.is_closed, until)
        if future.deadline <= time.monotonic() and not calls.has_room():
            seconds = time.monotonic() - future.started
            reason = f"{calls.max_inflight} calls of {self.peer} are unanswered"
            raise DeadlineExceeded(f"{self.peer}: no room for {future.method} within {seconds:.1f} s, {reason}")

    def _wait(self, is_ready: Callable[[], bool], until: float) -> bool:
        return (self._inline or self.calls).wait(is_ready, until)
