"""A metric as a page draws it: over the chosen x-axis, smoothed, and reduced to what its pixels can show."""

import base64
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dreamfleet.metrics.reading import Points

AXES = ("step", "update", "hours")
UPDATES = "learner/updates"
MAX_POINTS = 4000
MAX_WINDOW = 100_000


class View(NamedTuple):
    """How a page looks at series: x-axis, points in the running mean, width in pixels and range of x."""

    axis: str = "step"
    window: int = 1
    points: int = 800
    start: float = -math.inf
    end: float = math.inf

    @property
    def needs(self) -> list[str]:
        """The metrics that its x-axis is made of."""
        return [UPDATES] if self.axis == "update" else []


class Line(NamedTuple):
    """A series in order of x, without values that are not finite."""

    xs: np.ndarray
    ys: np.ndarray
    smooth: np.ndarray


def make_line(points: Points, to_xs: Callable[[Points], np.ndarray], window: int) -> Line:
    """The whole of a series; the running mean is over neighbouring points, however few of them are shown."""
    xs, ys = to_xs(points), points.value
    is_finite = np.isfinite(ys) & np.isfinite(xs)
    if not is_finite.all():
        xs, ys = xs[is_finite], ys[is_finite]
    if len(xs) > 1 and (np.diff(xs) < 0).any():  # a run that was killed and resumed repeats some steps
        order = np.argsort(xs, kind="stable")
        xs, ys = xs[order], ys[order]
    return Line(xs, ys, running_mean(ys, window))


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and up to `window - 1` before it."""
    if window <= 1 or not len(values):
        return values
    # Sums of distances from the middle, so that differences of large sums do not eat up the digits.
    middle = float(np.median(values[:: max(1, len(values) // 1000)]))
    sums = np.concatenate([[0.0], np.cumsum(values - middle)])
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - window)
    return middle + (sums[ends] - sums[starts]) / (ends - starts)


def latest_means(values: np.ndarray, window: int, count: int) -> np.ndarray:
    """The running mean at the last `count` finite values, without what is before their windows; quick for few."""
    needed = count + window - 1
    recent = values[-needed:]
    if not np.isfinite(recent).all():  # left out, as in the whole of the line
        recent = values[np.isfinite(values)][-needed:]
    ends = range(len(recent) - count + 1, len(recent) + 1)
    return np.array([np.add.reduce(part := recent[max(0, end - window) : end]) / len(part) for end in ends])


def reduce_line(line: Line, view: View) -> dict:
    """The part of a line in the range of the view, as arrays in base64: `x`, `y`, and `sx`, `sy` if it is smoothed.

    `newest` is the end of the whole line, wherever the range ends.
    """
    # One point more at each side, so that the line reaches the edges.
    first = max(0, int(np.searchsorted(line.xs, view.start, "left")) - 1)
    last = int(np.searchsorted(line.xs, view.end, "right")) + 1
    xs, ys, smooth = line.xs[first:last], line.ys[first:last], line.smooth[first:last]
    keep = extremes(xs, ys, view.points // 2)
    result = {"x": encode(xs[keep]), "y": encode(ys[keep]), "total": len(line.xs)}
    result["newest"] = float(line.xs[-1]) if len(line.xs) else None
    if view.window > 1:
        keep = extremes(xs, smooth, view.points // 2)
        result |= {"sx": encode(xs[keep]), "sy": encode(smooth[keep])}
    return result


def extremes(xs: np.ndarray, ys: np.ndarray, buckets: int) -> np.ndarray | slice:
    """Indices of the least and the greatest value in each of equal intervals of x, and of both ends.

    No peak disappears, however many points there are: a pixel column shows the same as if all of them were drawn.
    """
    if len(xs) <= 2 * buckets:
        return slice(None)
    scale = buckets / max(xs[-1] - xs[0], 1e-300)
    place = np.minimum((xs - xs[0]) * scale, buckets - 1).astype(np.int64)
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(xs)))
    keep = np.zeros(len(xs), bool)
    keep[[0, -1]] = True
    for best in (np.minimum, np.maximum):
        hits = np.flatnonzero(ys == best.reduceat(ys, starts)[group])
        keep[hits[np.flatnonzero(np.diff(group[hits], prepend=-1))]] = True  # the first one of each interval
    return np.flatnonzero(keep)


def encode(values: np.ndarray) -> str:
    """Numbers as base64 of little-endian float64: exact, and much quicker than digits."""
    return base64.b64encode(np.ascontiguousarray(values, "<f8").tobytes()).decode()
