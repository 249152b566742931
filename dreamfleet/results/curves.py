"""Learning curves: read from runs and reference files, resampled to a common x-axis, averaged over seeds."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dreamfleet.base.logdir import EVAL_SCORES, METRICS, SCORES
from dreamfleet.errors import ConfigError
from dreamfleet.metrics.reading import Points, read_table
from dreamfleet.options.saved import fixed_values

SCORE = "episode/score"


class RunCurve(NamedTuple):
    """A metric of one run: its values over an x-axis, in order."""

    xs: np.ndarray
    ys: np.ndarray


class Curve(NamedTuple):
    """The seeds of one experiment, for one line in a figure."""

    label: str
    task: str
    runs: list[RunCurve]
    is_reference: bool = False


class Band(NamedTuple):
    """A curve as it is drawn: mean and standard deviation over seeds."""

    xs: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def find_runs(directory: Path) -> list[Path]:
    """The log directories at or below a directory that have anything to draw."""
    if not directory.is_dir():
        raise ConfigError("logdir", str(directory), "is not a directory", "name the --logdir of a dreamfleet train")
    runs = sorted(path.parent for path in directory.rglob(SCORES))
    if not runs:
        reason = f"holds no run (there is no {SCORES} in it or below it)"
        raise ConfigError("logdir", str(directory), reason, "name the --logdir of a dreamfleet train")
    return runs


def group_key(options: Mapping[str, Any]) -> tuple:
    """The same for runs that differ in nothing but the seed: what their data and parameters depend on."""
    return tuple(sorted((key, repr(value)) for key, value in fixed_values(options).items() if key != "seed"))


def label_of(logdir: Path) -> str:
    """The name of a run's directory without what tells its seeds apart: `x` for x/seed_0, x-seed1 and x_s2."""
    name = re.sub(r"(^|[-_.])(seed|s)[-_]?\d+$", "", logdir.name)
    return name or logdir.parent.name


def load_run_curve(logdir: Path, metric: str, x: str) -> RunCurve:
    """A metric of a run over `step` or over `hours` of its time; empty if the run never logged it."""
    return make_run_curve(read_table(logdir / file_of(metric)).points(metric), x)


def file_of(metric: str) -> str:
    """The file of a run that a metric is in."""
    kind, _, fact = metric.rpartition("/")
    files = {"episode": SCORES, "eval_episode": EVAL_SCORES} if fact in ("score", "length") else {}
    return files.get(kind, METRICS)


def make_run_curve(points: Points, x: str) -> RunCurve:
    """A metric of a run from its points: the finite ones, in order."""
    is_finite = np.isfinite(points.value)
    step, times, ys = points.step[is_finite], points.time[is_finite], points.value[is_finite]
    order = np.argsort(step, kind="stable")
    if x == "step":
        return RunCurve(step[order].astype(float), ys[order])
    return RunCurve((times[order] - times.min(initial=math.inf)) / 3600, ys[order])


def aggregate(runs: Iterable[RunCurve], edges: np.ndarray) -> Band:
    """Resamples runs to the centers of common intervals, and averages over them.

    In each interval a run counts with the mean of its values; those between two values that have none themselves are
    filled in on a straight line. The curve ends where more than half of the runs have ended.
    """
    centers = (edges[:-1] + edges[1:]) / 2
    table = np.stack([_resample(run, edges, centers) for run in runs])
    count = np.isfinite(table).sum(0)
    is_there = 2 * count >= len(table)
    table = table[:, is_there]
    return Band(centers[is_there], np.nanmean(table, 0), np.nanstd(table, 0))


def make_edges(curves: Iterable[Curve], points: int) -> np.ndarray:
    """Intervals from 0 to the end of the longest run."""
    end = max(run.xs[-1] for curve in curves for run in curve.runs)
    return np.linspace(0, end or 1.0, points + 1)


def load_reference(path: Path) -> list[Curve]:
    """Curves of a JSON or CSV file; those with the same name and task are seeds of one curve.

    JSON: a list of objects with `xs`, `ys` and optionally `name`, `task` and `seed`. CSV: columns `step`, `score` and
    optionally the same three, one line a point. Without a task a curve belongs to every task.
    """
    try:
        rows = _read_csv(path) if path.suffix == ".csv" else _read_json(path)
        curves: dict[tuple[str, str], list[RunCurve]] = {}
        for row in rows:
            xs, ys = np.asarray(row["xs"], float), np.asarray(row["ys"], float)
            if xs.ndim != 1 or xs.shape != ys.shape or not len(xs):
                raise ValueError(f"xs and ys must be lists of the same length, not {xs.shape} and {ys.shape}")
            order = np.argsort(xs, kind="stable")
            key = str(row.get("name") or path.stem), str(row.get("task") or "")
            curves.setdefault(key, []).append(RunCurve(xs[order], ys[order]))
    except OSError as error:
        raise ConfigError("reference", str(path), f"cannot be read ({error.strerror})", "check the path") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "see `dreamfleet plot --help` for the two forms"
        raise ConfigError("reference", str(path), f"is not a file of curves ({error!r})", remedy) from None
    return [Curve(name, task, runs, is_reference=True) for (name, task), runs in curves.items()]


def _resample(run: RunCurve, edges: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The mean of a run in each interval; NaN before its first and behind its last value."""
    place = np.clip(np.searchsorted(edges, run.xs, "left") - 1, 0, len(centers) - 1)
    count = np.bincount(place, minlength=len(centers))
    total = np.bincount(place, weights=run.ys, minlength=len(centers))
    has = np.flatnonzero(count)
    return np.interp(centers, centers[has], total[has] / count[has], left=np.nan, right=np.nan)


def _read_json(path: Path) -> list[Mapping[str, Any]]:
    rows = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(rows, list):
        raise ValueError("it is not a list")
    return rows


def _read_csv(path: Path) -> list[Mapping[str, Any]]:
    import csv

    curves: dict[tuple, dict[str, Any]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = tuple(row.get(name) or "" for name in ("name", "task", "seed"))
            curve = curves.setdefault(key, {"name": key[0], "task": key[1], "xs": [], "ys": []})
            curve["xs"].append(float(row["step"]))
            curve["ys"].append(float(row["score"]))
    return list(curves.values())
