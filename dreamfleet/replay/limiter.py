"""The samples-per-insert limiter: keeps learning and acting in step.

With spi = train_ratio / batch_length, tol = 4 * batch_size, minsize = batch_size * length, and

    diff = spi * max(0, inserts - minsize) - samples

- an insert is allowed while len(replay) < batch_size or diff < max(tol * spi, 2 * batch_size);
- a sample of B is allowed when len(replay) >= batch_size, inserts >= minsize and diff - B >= -tol.

`inserts` counts rows, `samples` counts sequences. One of the two is always allowed, so neither side can block the other
for good: while sequences are too few, inserting is free; once they are enough, too few samples stop the inserts and too
many stop the samples, and the two thresholds do not meet. train_ratio <= 0 removes the limit on both sides. Once the
`steps` of a run are inserted, no more are, and the learner ends the run.
"""

import threading
import time
from collections.abc import Callable

from dreamfleet import lifecycle
from dreamfleet.base import waits

SHORTEST_WAIT_S = 1e-3  # that counts as one


class Limiter:
    """Counts inserts and samples and makes either side wait for the other; thread-safe."""

    def __init__(
        self,
        num_items: Callable[[], int],
        *,
        train_ratio: float,
        batch_size: int,
        batch_length: int,
        length: int,
        inserts: int = 0,
        samples: int = 0,
        steps: int = 0,
        tolerance: float | None = None,
        min_size: int | None = None,
    ):
        self.inserts = inserts
        self.samples = samples
        self._steps = steps
        self._num_items = num_items
        self._batch_size = batch_size
        self._is_limited = train_ratio > 0
        self._per_insert = max(train_ratio, 0.0) / batch_length
        self._tolerance = 4 * batch_size if tolerance is None else tolerance
        self._min_size = batch_size * length if min_size is None else min_size
        self._changed = threading.Condition()
        self._is_closed = False
        self._waits = {"insert": WaitMeter(), "sample": WaitMeter()}

    def may_insert(self) -> bool:
        """Whether the law allows another insert."""
        if self._is_complete():
            return False
        if not self._is_limited or self._num_items() < self._batch_size:
            return True
        return self._diff() < max(self._tolerance * self._per_insert, 2 * self._batch_size)

    def may_sample(self, count: int) -> bool:
        """Whether the law allows a sample of `count` sequences."""
        if self._num_items() < self._batch_size:
            return False
        if not self._is_limited:
            return True
        return self.inserts >= self._min_size and self._diff() - count >= -self._tolerance

    def wait_insert(self, timeout_s: float | None = None) -> bool:
        """Blocks until an insert is allowed; returns whether it is."""
        what = waits.END_OF_RUN(peer="learner") if self._is_complete() else waits.RATIO_INSERT()
        return self._waits["insert"].measure(lambda: self.wait_for(self.may_insert, what, timeout_s))

    def wait_sample(self, count: int, timeout_s: float | None = None) -> bool:
        """Blocks until a sample of `count` is allowed; returns whether it is."""
        what = waits.RATIO_SAMPLE()
        return self._waits["sample"].measure(lambda: self.wait_for(lambda: self.may_sample(count), what, timeout_s))

    def wait_for(self, is_allowed: Callable[[], bool], what: str, timeout_s: float | None = None) -> bool:
        """Blocks until `is_allowed`, looked at after each insert and sample; False after the timeout or a close."""
        with self._changed:
            if is_allowed():
                return True
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            with lifecycle.waiting(what):
                while not is_allowed():
                    left = None if deadline is None else deadline - time.monotonic()
                    if self._is_closed or (left is not None and left <= 0):
                        return False
                    self._changed.wait(left)
            return True

    def inserted(self, count: int) -> None:
        """Counts `count` rows that were committed."""
        with self._changed:
            self.inserts += count
            self._changed.notify_all()

    def sampled(self, count: int) -> None:
        """Counts `count` sequences that were handed out."""
        with self._changed:
            self.samples += count
            self._changed.notify_all()

    def set_samples(self, samples: int) -> None:
        """Takes the learner's word for how much it has trained, after it was restarted.

        Not for more than was counted here or the inserts ask for: it would wait for the environments without end.
        """
        with self._changed:
            most = self._per_insert * max(0, self.inserts - self._min_size) + self._tolerance
            self.samples = min(samples, max(self.samples, int(most))) if self._is_limited else samples
            self._changed.notify_all()

    def stats(self) -> dict[str, float]:
        """How long, how often and for which share of the time each side waited since the last call."""
        return {f"{side}_{k}": v for side, meter in self._waits.items() for k, v in meter.result().items()}

    def close(self) -> None:
        """Wakes everyone who waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _is_complete(self) -> bool:
        return 0 < self._steps <= self.inserts

    def _diff(self) -> float:
        return self._per_insert * max(0, self.inserts - self._min_size) - self.samples


class WaitMeter:
    """Measures the waits of one side; one that is given up and taken up again is one wait."""

    def __init__(self):
        self._since = time.monotonic()
        self._waited_s = self._unfinished_s = 0.0
        self._count = 0

    def measure(self, wait: Callable[[], bool]) -> bool:
        start = time.monotonic()
        is_allowed = wait()
        seconds = time.monotonic() - start
        self._waited_s += seconds
        self._unfinished_s += seconds
        if is_allowed:
            self._count += self._unfinished_s > SHORTEST_WAIT_S
            self._unfinished_s = 0.0
        return is_allowed

    def result(self) -> dict[str, float]:
        now = time.monotonic()
        waited_s, count, elapsed_s = self._waited_s, self._count, now - self._since
        self._waited_s, self._count, self._since = 0.0, 0, now
        return {"wait_s": waited_s, "waits": count, "wait_share": min(1.0, waited_s / elapsed_s) if elapsed_s else 0.0}
