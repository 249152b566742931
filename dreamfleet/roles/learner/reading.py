"""Calls made in a thread of their own, for a caller that may have to go on without their answers."""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from dreamfleet import lifecycle


class ReadingThread:
    """Makes calls, one after the other; one that never returns holds up nobody but this thread."""

    def __init__(self, on_done: Callable[[], None]):
        self._on_done = on_done
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future] | None] = queue.SimpleQueue()
        lifecycle.spawn(self._run, name="batches")

    def call(self, function: Callable[[], Any]) -> Future:
        future = Future()
        self._calls.put((function, future))
        return future

    def close(self) -> None:
        """Lets the thread end after the calls that were asked for."""
        self._calls.put(None)

    def _run(self) -> None:
        while call := self._calls.get():
            function, future = call
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            self._on_done()
