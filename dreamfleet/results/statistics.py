"""Statistics of scores with the uncertainty that comes from how few they are."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

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


def bootstrap(scores: ArrayLike, statistic: Callable[..., np.ndarray], seed: int = 0) -> Estimate:
    """A statistic (a function of an axis) of the scores, and its percentile interval over scores drawn from them."""
    values = np.asarray(scores, np.float64)
    value = float(statistic(values, axis=-1))
    if len(values) < 2:  # nothing to draw from
        return Estimate(value, value, value)
    interval = stats.bootstrap(
        (values,),
        statistic,
        n_resamples=RESAMPLES,
        batch=CHUNK,
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Estimate(value, float(interval.low), float(interval.high))


def interquartile_mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """The mean without the lowest and the highest quarter (rounded down)."""
    return stats.trim_mean(values, 0.25, axis=axis)


STATISTICS: dict[str, Callable[..., np.ndarray]] = {"mean": np.mean, "median": np.median, "iqm": interquartile_mean}
