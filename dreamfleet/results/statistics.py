"""Statistics of scores with the uncertainty that comes from how few they are."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 10_000
CHUNK = 1_000  # resamples that are held in memory at once
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A statistic, and the interval that 95 % of its bootstrap resamples are in."""

    value: float
    low: float
    high: float


def summarize(scores: ArrayLike) -> dict[str, Estimate]:
    """Mean, median and interquartile mean."""
    return {name: bootstrap(scores, statistic) for name, statistic in STATISTICS.items()}


def bootstrap(scores: ArrayLike, statistic: Callable[[np.ndarray], np.ndarray], seed: int = 0) -> Estimate:
    """A statistic (a function over the last axis) of the scores, and of scores drawn from them with replacement."""
    values = np.asarray(scores, np.float64)
    rng = np.random.default_rng(seed)
    drawn = [statistic(values[rng.integers(0, len(values), (CHUNK, len(values)))]) for _ in range(RESAMPLES // CHUNK)]
    low, high = np.quantile(np.concatenate(drawn), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(statistic(values)), float(low), float(high))


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """The mean without the lowest and the highest quarter (rounded down) along the last axis."""
    count = values.shape[-1]
    cut = count // 4
    return np.sort(values, -1)[..., cut : count - cut].mean(-1)


STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda values: values.mean(-1),
    "median": lambda values: np.median(values, -1),
    "iqm": interquartile_mean,
}
