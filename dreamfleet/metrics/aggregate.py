"""Reduces many metrics to one value a key and an interval; every role that reports owns one.

Neither class is locked: each object belongs to one thread.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np

_REDUCERS: dict[str, Callable[[float, float], float]] = {
    "max": max,
    "min": min,
    "sum": lambda total, value: total + value,
}


MOST_ROWS = 1_000_000  # of joined arrays


class Aggregator:
    """Collects metrics between two results.

    Scalars are averaged, or reduced as the end of their key says (`/max`, `/min`, `/sum`, `/last`). Arrays and
    whatever is not a number keep the last value. What is not added `by_key` is averaged whatever its key ends in, and
    arrays are joined along their first axis.
    """

    def __init__(self):
        self._means: dict[str, list[float]] = {}  # key -> [sum, count]
        self._arrays: dict[str, list[np.ndarray]] = {}  # to be joined
        self._values: dict[str, object] = {}

    def __len__(self) -> int:
        return len(self._means) + len(self._arrays) + len(self._values)

    def add(self, metrics: Mapping[str, object], prefix: str = "", by_key: bool = True) -> None:
        """Takes in one set of metrics, its keys put below `prefix`."""
        for name, value in metrics.items():
            key = f"{prefix}/{name}" if prefix else name
            number = _to_number(value)
            suffix = key.rpartition("/")[2] if by_key and "/" in key else ""
            if number is None and not by_key and np.ndim(value) > 0:  # type: ignore[arg-type]
                self._join(key, np.asarray(value))
            elif number is None or suffix == "last":
                self._values[key] = value
            elif suffix in _REDUCERS:
                self._reduce(key, number, _REDUCERS[suffix])
            else:
                mean = self._means.setdefault(key, [0.0, 0])
                mean[0] += number
                mean[1] += 1

    def result(self, reset: bool = True) -> dict:
        """The reduced value of every key added since the last reset."""
        means = {key: total / count for key, (total, count) in self._means.items()}
        arrays = {key: np.concatenate(parts)[:MOST_ROWS] for key, parts in self._arrays.items()}
        result = {**means, **arrays, **self._values}
        if reset:
            for collected in (self._means, self._arrays, self._values):
                collected.clear()
        return result

    def _join(self, key: str, array: np.ndarray) -> None:
        parts = self._arrays.setdefault(key, [array])
        if parts[0].shape[1:] != array.shape[1:] or parts[0].dtype != array.dtype:
            self._arrays[key] = [array]  # they cannot be joined: the last counts
        elif parts[0] is not array and sum(map(len, parts)) < MOST_ROWS:
            parts.append(array)

    def _reduce(self, key: str, number: float, reducer: Callable[[float, float], float]) -> None:
        before = self._values.get(key)
        # max() and min() would let the order decide whether a NaN is seen; it always should be.
        if isinstance(before, float) and number == number:
            number = reducer(before, number) if before == before else before
        self._values[key] = number


class Rate:
    """Counts events and tells how many there were per second since it was last asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._count = 0
        self._since = clock()

    def step(self, amount: int = 1) -> None:
        """Counts `amount` events."""
        self._count += amount

    def result(self) -> float:
        """Events per second since the last result."""
        now = self._clock()
        elapsed, count = now - self._since, self._count
        self._since, self._count = now, 0
        return count / elapsed if elapsed > 0 else 0.0


def _to_number(value: object) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str | bytes) or value is None or np.ndim(value) > 0:  # type: ignore[arg-type]
        return None
    try:
        return float(np.asarray(value)[()])
    except (TypeError, ValueError):
        return None
