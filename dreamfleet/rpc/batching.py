"""Gathers requests into batches, and runs what follows a batch in order; used by the batched methods of a server."""

import logging
import math
import threading
from collections.abc import Callable, Hashable
from typing import Any

from dreamfleet import lifecycle
from dreamfleet.base import waits

_log = logging.getLogger("dreamfleet.rpc")


class Group:
    """Requests that will be one batch."""

    __slots__ = ("deadline", "items", "requests", "rows")

    def __init__(self, deadline: float):
        self.requests: list[Any] = []
        self.items: list[Any] = []
        self.rows = 0
        self.deadline = deadline


class Batcher:
    """Forms batches of whole items; passive, used only by the thread that reads requests (except `finished`).

    A batch is emitted when it has `batch` rows, when `is_full` says so, or when its oldest item waited `max_wait_s`.
    The last only while a worker is free: a batch that has to wait anyway may as well grow.
    """

    def __init__(self, batch: int, max_wait_s: float, workers: int, is_full: Callable | None, emit: Callable):
        self.batch = batch
        self._max_wait_s, self._workers = max_wait_s, workers
        self._is_full, self._emit = is_full, emit
        self._groups: dict[Hashable, Group] = {}
        self._lock = threading.Lock()
        self._running = 0  # batches emitted and not finished
        self._is_overdue = False  # a batch has waited long enough, but there is no free worker

    @property
    def depth(self) -> int:
        return sum(len(group.requests) for group in list(self._groups.values()))

    def add(self, request: Any, item: Any, now: float) -> None:
        """Adds a request; may emit the batch that it completes, or the one that it no longer fits into."""
        key = getattr(item, "group", None)
        group = self._groups.get(key)
        if group and group.rows + item.rows > self.batch:
            self._emit_group(key)
            group = None
        if not group:
            group = self._groups[key] = Group(now + self._max_wait_s)
        group.requests.append(request)
        group.items.append(item)
        group.rows += item.rows
        if group.rows >= self.batch or (self._is_full and self._is_full(group.items)):
            self._emit_group(key)

    def next_deadline(self) -> float:
        """When `flush` has to be called next, unless `finished` asks for it."""
        if not self._groups or self._is_overdue:
            return math.inf
        return min([group.deadline for group in self._groups.values()])

    def flush(self, now: float) -> None:
        """Emits the batches that have waited long enough, oldest first, as long as workers are free."""
        while self._groups:
            key = min(self._groups, key=lambda key: self._groups[key].deadline)
            if self._groups[key].deadline > now:
                return
            with self._lock:
                self._is_overdue = self._running >= self._workers
            if self._is_overdue:
                return
            self._emit_group(key)

    def finished(self) -> bool:
        """Says that a worker is done with a batch; returns whether the reading thread has to call `flush`."""
        with self._lock:
            self._running -= 1
            was_overdue, self._is_overdue = self._is_overdue, False
            return was_overdue

    def _emit_group(self, key: Hashable) -> None:
        group = self._groups.pop(key)
        with self._lock:
            self._running += 1
        self._emit(group)


class PostQueue:
    """Calls `post` for finished batches in the order of their numbers, in one thread."""

    def __init__(self, name: str, post: Callable[[Any], None], backlog: int):
        self._name, self._post, self._backlog = name, post, backlog
        self._finished: dict[int, tuple[Any, ...]] = {}  # number -> arguments of post, empty to skip it
        self._condition = threading.Condition()
        self._next = 0
        self._is_stopping = self._is_ended = False

    def finish(self, number: int, args: tuple[Any, ...]) -> None:
        """Hands over what batch `number` has to post: `(info,)`, or nothing."""
        with self._condition:
            self._finished[number] = args
            self._condition.notify_all()

    def wait_for_room(self) -> None:
        """Blocks a worker while too many finished batches are not posted."""
        # Waiting after the result was handed over cannot deadlock: workers take batches in order, so every batch with
        # a lower number is finished or under way.
        with self._condition:
            if self._has_room():
                return
            with lifecycle.waiting(waits.EARLIER_BATCHES(peer=self._name)):
                self._condition.wait_for(self._has_room)

    def run(self) -> None:
        """The loop of the posting thread, until `end` was called and everything is posted."""
        while (number := self._wait_for_next()) is not None:
            self.post(self._finished[number])
            with self._condition:
                del self._finished[number]
                self._next = number + 1
                self._condition.notify_all()

    def post(self, args: tuple[Any, ...]) -> None:
        """Does the work after one batch, right here."""
        try:
            if args:
                self._post(*args)
        except Exception:
            _log.exception("%s: the work after a batch failed", self._name)

    def stop_waiting(self) -> None:
        """Lets workers go on whatever the backlog, so that they can end."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()

    def end(self) -> None:
        """Says that no worker will finish another batch."""
        with self._condition:
            self._is_ended = True
            self._condition.notify_all()

    def _has_room(self) -> bool:
        return self._is_stopping or len(self._finished) < self._backlog

    def _wait_for_next(self) -> int | None:
        with self._condition:
            self._condition.wait_for(lambda: self._next in self._finished or self._is_ended)
            # At the end there may be gaps, of batches that were not run any more.
            return self._next if self._next in self._finished else min(self._finished, default=None)
