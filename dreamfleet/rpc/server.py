"""The server: methods with their worker threads, errors and statistics; its engine reads requests and sends answers."""

import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from dreamfleet import lifecycle
from dreamfleet.errors import BadRequest, Closed, RunOver
from dreamfleet.rpc.batching import Batcher
from dreamfleet.rpc.counters import Counters
from dreamfleet.rpc.engine import ServerEngine
from dreamfleet.rpc.limited_log import LimitedLog
from dreamfleet.rpc.messages import Failure, Request
from dreamfleet.rpc.methods import BatchedMethods, PlainMethod

_JOIN_S = 5.0


class Server:
    """Serves methods; each has its own threads, so that a blocked one never blocks another."""

    def __init__(self, addr: str, name: str, make_engine: "Callable[[Server], ServerEngine]"):
        self.addr = addr
        self.name = name
        self.counters = Counters("bad_requests", "errors", "dropped_replies")
        self.log = LimitedLog(name)
        self.is_closed = False
        self._methods: dict[str, PlainMethod | BatchedMethods] = {}
        self._handlers: list[PlainMethod | BatchedMethods] = []
        self._batched: list[BatchedMethods] = []
        self._threads: list[threading.Thread] = []
        self._is_started = False
        self.engine = make_engine(self)

    def bind(self, method: str, fn: Callable[..., Any], *, workers: int = 1, takes_meta: bool = False) -> None:
        """Serves `method` with `fn(data)` or `fn(data, meta)`; arrays it returns must not change afterwards."""
        self._add([method], PlainMethod(self, fn, workers, takes_meta))

    def bind_batched(
        self,
        methods: dict[str, Callable[..., Any]],
        fn: Callable[[list[Any]], tuple[list[Any], Any]],
        *,
        post: Callable[[Any], None] | None = None,
        batch: int,
        max_wait_ms: float,
        workers: int = 1,
        is_full: Callable[[list[Any]], bool] | None = None,
        post_backlog: int = 8,
        takes_meta: bool = False,
    ) -> Callable[[int], None]:
        """Serves `methods` (name -> parser of data into an item) in batches, with `fn(items) -> (replies, info)`.

        A reply that is an exception is the error answer of its item. Without workers the thread that reads requests
        does all the work: nothing is handed from thread to thread, and nothing is read meanwhile.

        `item.rows` counts toward `batch`; items of different `item.group` are batched apart, and `is_full` is asked
        about the waiting items of one group. After its replies, `post(info)` runs in the order of the batches.
        What is returned changes the size of later batches.
        """

        def make_batcher(emit: Callable) -> Batcher:
            return Batcher(batch, max_wait_ms / 1000, max(1, workers), is_full, emit)

        handler = BatchedMethods(self, methods, fn, post, workers, takes_meta, make_batcher, post_backlog)
        self._add(methods, handler)
        self._batched.append(handler)
        return handler.set_batch

    def start(self) -> None:
        """Starts to serve; returns when clients can connect."""
        assert not self._is_started, "a server starts once"
        self._is_started = True
        self.engine.listen()
        for handler in self._handlers:
            for loop in handler.loops:
                self._start_thread(loop)

    def close(self) -> None:
        """Stops to serve and joins all threads; answers that were already made still go out."""
        if self.is_closed:
            return
        self.is_closed = True
        for handler in self._handlers:
            handler.close()
        self.join(self._threads)
        self.engine.close()

    def stats(self) -> dict[str, float]:
        """Rates, mean times and depths since the last call."""
        depth = sum(handler.depth for handler in self._handlers)
        return self.counters.take() | {"queue": depth} | self.engine.stats()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def dispatch(self, request: Request) -> None:
        """Passes a request on to its method."""
        handler = self._methods.get(request.method)
        if handler:
            handler.admit(request)
        else:
            self.engine.deliver([(request, self.make_failure(request, self.unknown_method()))])

    @property
    def method_names(self) -> list[str]:
        return sorted(self._methods)

    def unknown_method(self) -> BadRequest:
        return BadRequest(f"there is no such method; methods are {', '.join(self.method_names)}")

    def next_deadline(self) -> float:
        return min([handler.next_deadline() for handler in self._batched], default=math.inf)

    def flush(self) -> None:
        """Lets batches start that have waited long enough."""
        for handler in self._batched:
            handler.flush(time.monotonic())

    def make_failure(self, request: Request, error: Exception) -> Failure:
        """Logs an error in a request and makes it ready for the caller."""
        failure = Failure.from_error(self.name, request.method, error)
        kind = f"{request.method if request.method in self._methods else 'unknown'}/{type(error).__name__}"
        if isinstance(error, (Closed, RunOver)):
            pass  # what is being stopped cannot answer; that is no news
        elif failure.is_refusal:
            self.counters.add("bad_requests")
            self.log.warning(kind, f"refused a call of {request.method[:64]!r}: {failure.summary}")
        else:
            self.counters.add("errors")
            self.log.error(kind, f"{request.method} failed\n{failure.traceback}")
        return failure

    def count_calls(self, requests: list[Request], start: float, end: float) -> None:
        """Counts requests that were worked on together, by the method of the first."""
        waited_s = len(requests) * start - sum([request.arrived for request in requests])
        self.counters.add_calls(requests[0].method, len(requests), waited_s, len(requests) * (end - start))

    def join(self, threads: list[threading.Thread]) -> None:
        """Waits a while for threads to end."""
        deadline = time.monotonic() + _JOIN_S
        others = [thread for thread in threads if thread is not threading.current_thread()]
        for thread in others:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in others):
            self.log.warning("join", f"a handler is still at work {_JOIN_S:.0f} s after close")

    def _add(self, names: Iterable[str], handler: PlainMethod | BatchedMethods) -> None:
        assert not self._is_started, "methods are bound before the server starts"
        for name in names:
            assert name not in self._methods, f"method {name} is bound twice"
            self._methods[name] = handler
        self._handlers.append(handler)

    def _start_thread(self, loop: Callable[[], None]) -> None:
        self._threads.append(lifecycle.spawn(loop, name=f"{self.name}-rpc"))
