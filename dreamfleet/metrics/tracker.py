"""Keeps tracking services off the logger's back: each gets its metrics in a thread of its own, and may be slow."""

import logging
import queue
from collections.abc import Callable, Iterable
from typing import Protocol

from dreamfleet import lifecycle
from dreamfleet.base import waits
from dreamfleet.metrics.values import Summary, without_signals

log = logging.getLogger("dreamfleet.metrics")

CAPACITY = 100  # batches of metrics that may wait
CLOSE_S = 25.0  # for the last metrics to arrive; below the time that the logger has to stop


class Service(Protocol):
    """A connection to a tracking service."""

    def write(self, summaries: Iterable[Summary]) -> None: ...

    def close(self) -> None: ...


class Tracker:
    """A writer whose work is done elsewhere; trouble with the service is logged and never stops a run."""

    def __init__(self, name: str, connect: Callable[[], Service], close_s: float = CLOSE_S):
        self._name = name
        self._close_s = close_s
        self._connect = connect
        self._queue: queue.Queue[list[Summary] | None] = queue.Queue(CAPACITY)
        self._dropped = 0
        self._thread = lifecycle.spawn(self._work, name=name)

    def __call__(self, summaries: Iterable[Summary]) -> None:
        """Hands the summaries over, or drops them if the service is too far behind."""
        try:
            self._queue.put_nowait(without_signals(summaries))
        except queue.Full:
            self._dropped += 1
            if self._dropped == 1:
                log.warning(
                    "%s is %d batches of metrics behind: dropping more until it catches up", self._name, CAPACITY
                )

    def wait(self) -> None:
        """Ends the connection after everything that was handed over, if the service takes it in time."""
        with lifecycle.waiting(waits.LAST_METRICS(tracker=self._name)):
            try:
                self._queue.put(None, timeout=self._close_s)
                self._thread.join(self._close_s)
            except queue.Full:
                pass
        if self._thread.is_alive():
            log.warning("%s did not take the last metrics within %g s", self._name, self._close_s)
        if self._dropped:
            log.warning("%s missed %d batches of metrics; metrics.jsonl has them", self._name, self._dropped)

    def _work(self) -> None:
        try:
            service = self._connect()
        except Exception as error:
            log.warning("%s gets no metrics, metrics.jsonl has them: %s", self._name, _describe(error))
            service = _Nowhere()
        while (summaries := self._queue.get()) is not None:
            try:
                service.write(summaries)
            except Exception as error:
                log.warning("%s did not take a batch of metrics: %s", self._name, _describe(error))
        try:
            service.close()
        except Exception as error:
            log.warning("%s was not closed: %s", self._name, _describe(error))


class _Nowhere:
    """Takes the metrics of a service that could not be reached."""

    def write(self, summaries: Iterable[Summary]) -> None: ...

    def close(self) -> None: ...


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
