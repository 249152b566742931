"""Where metrics end up on disk: the outputs of the logger's `elements.Logger`, chosen by name in the config.

An output is called with `(step, name, value)` triples whose values are arrays or strings.
"""

import functools
import json
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dreamfleet.base.extras import check_installed, install_command
from dreamfleet.base.logdir import EVAL_SCORES, METRICS, SCORES
from dreamfleet.metrics.mlflow import MlflowService
from dreamfleet.metrics.names import Renaming
from dreamfleet.metrics.reports import ReportWriter
from dreamfleet.metrics.tensorboard import TensorBoardWriter
from dreamfleet.metrics.tracker import CLOSE_S, Tracker
from dreamfleet.metrics.values import Summary, Value, kind_of
from dreamfleet.metrics.wandb import WandbService
from dreamfleet.options.logger import Names, Output

EVAL_KINDS = ("eval_episode", "evaluation")  # what episodes are logged under; the second in a logger of others
# The writers by name, with the packages that each needs; the extra that brings them has its name.
OUTPUTS: dict[Output, tuple[str, ...]] = {
    "jsonl": (),
    "tensorboard": ("tensorboardX", "PIL"),
    "wandb": ("wandb", "PIL"),
    "mlflow": ("mlflow", "sqlalchemy", "alembic", "PIL"),
}


def check_outputs(names: Sequence[Output]) -> None:
    """Refuses names in `logger.outputs` whose package is not installed."""
    for name in names:
        remedy = f"run {install_command(name)}, or leave it out"
        check_installed("logger.outputs", name, OUTPUTS[name], remedy)


def make_writers(
    names: Sequence[Output],
    logdir: str | Path,
    fps: float,
    settings: Mapping[str, object] | None = None,
    close_s: float = CLOSE_S,
    reports: int = 0,
    metric_names: Names = "dreamfleet",
) -> list:
    """The writers of `logger.outputs`; those of metrics and scores as JSON lines are always among them.

    The last `reports` videos and signals of each kind are kept as files; `metric_names` is `logger.names`.
    `settings` are the options of the run, which tracking services show beside its metrics; at the end of the run they
    get `close_s` to take the last metrics.
    """
    check_outputs(names)
    logdir, settings = Path(logdir), settings or {}
    train, evaluation = ScoreWriter(logdir / SCORES, "episode"), ScoreWriter(logdir / EVAL_SCORES, *EVAL_KINDS)
    own: list = [train, evaluation]
    if reports:
        own.append(ReportWriter(logdir, reports))
    named: list = [JsonlWriter(logdir / METRICS)]
    if "tensorboard" in names:
        named.append(TensorBoardWriter(logdir, fps))
    for name, service in (("wandb", WandbService), ("mlflow", MlflowService)):
        if name in names:
            named.append(Tracker(name, functools.partial(service, logdir, fps, settings), close_s))
    return own + (named if metric_names == "dreamfleet" else [Renaming(named, metric_names)])


class JsonlWriter:
    """Appends one line of JSON for every step, with its scalars and strings; NaN and infinity become null."""

    def __init__(self, path: str | Path, pattern: str | None = None):
        self._lines = _Lines(path)
        self._pattern = re.compile(pattern) if pattern else None

    def __call__(self, summaries: Iterable[Summary]) -> None:
        """Writes the summaries whose names the pattern is found in."""
        rows: dict[int, dict] = {}
        for step, name, value in summaries:
            if _is_plain(value) and (self._pattern is None or self._pattern.search(name)):
                rows.setdefault(step, {})[name] = value
        for step, row in rows.items():
            self._lines.append(step, row)

    def close(self) -> None:
        self._lines.close()


class ScoreWriter:
    """Appends one line of JSON for every finished episode of a kind, with its score and length.

    The kind may have other names in what comes; its first one is written.
    """

    def __init__(self, path: str | Path, kind: str, *others: str):
        self._lines = _Lines(path)
        facts = ("score", "length")
        self._names = {f"{name}/{fact}": f"{kind}/{fact}" for name in (kind, *others) for fact in facts}

    def __call__(self, summaries: Iterable[Summary]) -> None:
        """Writes the episodes among the summaries: a key that comes again belongs to the next episode."""
        row_step, row = 0, {}  # the line being put together
        for step, given, value in summaries:
            name = self._names.get(given)
            if name is None or not _is_plain(value):
                continue
            if row and (step != row_step or name in row):
                self._lines.append(row_step, row)
                row = {}
            row_step, row[name] = step, value
        if row:
            self._lines.append(row_step, row)

    def close(self) -> None:
        self._lines.close()


class _Lines:
    """An append-only file of JSON lines that stays valid when its writer is killed."""

    def __init__(self, path: str | Path):
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._repair()

    def append(self, step: int, row: dict) -> None:
        stamp = {"step": int(step), "time": round(time.time(), 3)}
        values = {name: _to_json(value) for name, value in row.items()}
        # The stamp comes first in the line, and wins over metrics of the same name.
        line = json.dumps({**stamp, **values, **stamp}, allow_nan=False) + "\n"
        # One write for one line: a kill tears no line but the last.
        rest = memoryview(line.encode())
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _repair(self) -> None:
        # A line that its writer did not finish is cut off, or ended if only its newline is missing.
        size = os.fstat(self._file).st_size
        tail = b""
        while size > len(tail) and b"\n" not in tail:
            length = min(1 << 16, size - len(tail))
            tail = os.pread(self._file, length, size - len(tail) - length) + tail
        torn = tail.rpartition(b"\n")[2]
        if not torn:
            return
        try:
            json.loads(torn)
            os.write(self._file, b"\n")
        except ValueError:
            os.ftruncate(self._file, size - len(torn))


def _is_plain(value: Value) -> bool:
    return kind_of(value) in ("text", "scalar")


def _to_json(value: Value) -> str | int | float | None:
    if isinstance(value, str):
        return value
    number = float(value) if value.dtype.kind == "f" else value.item()
    return number if math.isfinite(number) else None
