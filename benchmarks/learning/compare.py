"""Runs against recorded curves: means with bootstrap intervals, and a permutation test over seeds."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from benchmarks.learning.runs import area_under, score_at
from benchmarks.learning.tasks import Task
from dreamfleet.results.curves import Curve
from dreamfleet.results.statistics import STATISTICS, Estimate, bootstrap

MOST_WAYS = 100_000


def read_reference(curve: Curve, task: Task) -> list[dict]:
    """The figures of recorded runs, as `run_to_end` gives them for ours."""
    return [
        {
            "points": {str(point): score_at(run, point, task.window) for point in task.points},
            "area": area_under(run, task),
        }
        for run in curve.runs
    ]


def compare(ours: Sequence[dict], theirs: Sequence[dict], task: Task) -> list[dict]:
    """A row for each point and for the area under the curve: both sides, and how likely chance puts ours below.

    `p_below` is the share of all ways to divide the seeds among the two sides that put ours at least as far below as
    it is: small where ours is worse than the reference beyond what seeds explain.
    """
    rows = []
    for name in [*map(str, task.points), "area"]:
        mine, other = ([_figure(run, name) for run in runs] for runs in (ours, theirs))
        ways = math.comb(len(mine) + len(other), len(mine))  # all of them, if they are few enough
        test = stats.permutation_test((mine, other), _difference, alternative="less", n_resamples=min(ways, MOST_WAYS))
        rows.append({"at": name, "ours": _estimate(mine), "reference": _estimate(other), "p_below": float(test.pvalue)})
    return rows


def _difference(ours: np.ndarray, theirs: np.ndarray, axis: int) -> np.ndarray:
    return np.mean(ours, axis) - np.mean(theirs, axis)


def _figure(run: dict, name: str) -> float:
    return run["area"] if name == "area" else run["points"][name]


def _estimate(values: list[float]) -> Estimate:
    return bootstrap(values, STATISTICS["mean"])
