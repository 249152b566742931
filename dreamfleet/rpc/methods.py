"""How a bound method is carried out: alone or in batches, by its own worker threads."""

import itertools
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dreamfleet.rpc.batching import Batcher, Group, PostQueue
from dreamfleet.rpc.messages import Answer, Request

if TYPE_CHECKING:
    from dreamfleet.rpc.server import Server


class PlainMethod:
    """Calls `fn` once for every request."""

    def __init__(self, server: "Server", fn: Callable[..., Any], workers: int, takes_meta: bool):
        self._server, self._fn, self._workers, self._takes_meta = server, fn, workers, takes_meta
        self._queue: queue.SimpleQueue[Request | None] = queue.SimpleQueue()

    @property
    def depth(self) -> int:
        return self._queue.qsize()

    @property
    def loops(self) -> list[Callable[[], None]]:
        return [self._work] * self._workers

    def admit(self, request: Request) -> None:
        self._queue.put(request)

    def close(self) -> None:
        for _ in range(self._workers):
            self._queue.put(None)

    def _work(self) -> None:
        while (request := self._queue.get()) is not None and not self._server.is_closed:
            start = time.monotonic()
            try:
                data, meta = self._server.engine.open(request)
                answer = self._fn(data, meta) if self._takes_meta else self._fn(data)
            except Exception as error:
                answer = self._server.make_failure(request, error)
            self._server.count_calls([request], start, time.monotonic())
            self._server.engine.deliver([(request, answer)])


class BatchedMethods:
    """Calls `fn` once for every batch of requests, and `post` after their replies are on the way."""

    def __init__(
        self,
        server: "Server",
        parsers: dict[str, Callable[..., Any]],
        fn: Callable[[list[Any]], tuple[list[Any], Any]],
        post: Callable[[Any], None] | None,
        workers: int,
        takes_meta: bool,
        make_batcher: Callable[[Callable[[Group], None]], Batcher],
        post_backlog: int,
    ):
        self._server, self._parsers, self._fn, self._workers = server, parsers, fn, workers
        self._takes_meta = takes_meta
        self._batcher = make_batcher(self._emit)
        self._posts = PostQueue(f"{server.name}.{'/'.join(parsers)}", post, post_backlog) if post else None
        self._queue: queue.SimpleQueue[tuple[int, Group] | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._working = workers  # threads that may still finish a batch

    @property
    def depth(self) -> int:
        return self._batcher.depth + self._queue.qsize()

    @property
    def loops(self) -> list[Callable[[], None]]:
        return [self._work] * self._workers + ([self._posts.run] if self._posts and self._workers else [])

    def set_batch(self, batch: int) -> None:
        """Has later batches another size."""
        self._batcher.batch = batch

    def admit(self, request: Request) -> None:
        try:
            data, meta = self._server.engine.open(request)
            parse = self._parsers[request.method]
            item = parse(data, meta) if self._takes_meta else parse(data)
        except Exception as error:
            self._server.engine.deliver([(request, self._server.make_failure(request, error))])
            return
        self._batcher.add(request, item, request.arrived)

    def next_deadline(self) -> float:
        return self._batcher.next_deadline()

    def flush(self, now: float) -> None:
        self._batcher.flush(now)

    def close(self) -> None:
        for _ in range(self._workers):
            self._queue.put(None)
        if self._posts:
            self._posts.stop_waiting()

    def _emit(self, group: Group) -> None:
        if self._workers:
            self._queue.put((next(self._numbers), group))
            return
        post_args = self._run(group)
        if self._posts:
            self._posts.post(post_args)

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None and not self._server.is_closed:
            number, group = entry
            post_args = self._run(group)
            if self._posts:
                self._posts.finish(number, post_args)
                self._posts.wait_for_room()
        with self._lock:
            self._working -= 1
            if self._posts and not self._working:
                self._posts.end()

    def _run(self, group: Group) -> tuple[Any, ...]:
        """Answers a batch; returns the arguments for `post` as a tuple, empty if the batch failed."""
        start = time.monotonic()
        try:
            results, info = self._fn(group.items)
            if len(results) != len(group.items):
                raise ValueError(f"{len(group.items)} items were answered with {len(results)} replies")
            answers = [self._answer(*pair) for pair in zip(group.requests, results, strict=True)]
            post_args = (info,)
        except Exception as error:
            answers = [(request, self._server.make_failure(request, error)) for request in group.requests]
            post_args = ()
        must_flush = self._batcher.finished()
        self._server.count_calls(group.requests, start, time.monotonic())
        self._server.engine.deliver(answers)
        if must_flush:
            self._server.engine.wake()
        return post_args

    def _answer(self, request: Request, result: Any) -> Answer:
        """An item that was answered with an exception failed alone."""
        return request, self._server.make_failure(request, result) if isinstance(result, Exception) else result
