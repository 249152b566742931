"""One run as the dashboard holds it: its files, read again when they have changed. Shared by all browsers."""

import contextlib
import re
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dreamfleet.base.joined import SILENT_S
from dreamfleet.base.logdir import METRICS, SERIES
from dreamfleet.dashboard.folders import Folder
from dreamfleet.dashboard.joined import Joined
from dreamfleet.dashboard.series import UPDATES, Line, View, latest_means, make_line
from dreamfleet.dashboard.status import parse_status
from dreamfleet.errors import ConfigError
from dreamfleet.metrics.bottlenecks import find_bottleneck, find_compilation_s, find_phase
from dreamfleet.metrics.progress import Progress, parse_progress
from dreamfleet.metrics.reading import Points, Table
from dreamfleet.metrics.reports import list_reports
from dreamfleet.options.saved import FILENAME, read_saved
from dreamfleet.results.curves import file_of, group_key, label_of

READ_FIRST_S = 0.05  # of a file that is opened; the rest of a large one follows by itself
WANTED_S = 30.0  # a file whose series nobody has asked for since is not read any more
ENDED = ("complete", "stopped", "failed")
MAX_CONFIGS = 256
_OWN_LINES = re.compile(rb"^(seed: \d{1,18}|logdir: .*)\s*\n", re.M)  # of a saved config: those that seeds differ in
_CONFIGS: dict[bytes, tuple[dict[str, Any], str]] = {}  # options and group by the other lines, oldest first
_CONFIGS_LOCK = threading.Lock()


class Run:
    """The files of one run. `refresh` and the questions may come from several threads."""

    def __init__(self, name: str, folder: Folder):
        self.name = name
        self.folder = folder
        self._wanted_at: dict[str, float] = dict.fromkeys(SERIES, -np.inf)  # when a browser last asked for a file
        self.version = 0  # counts changes of the summary
        self.detail_version = 0  # and of status, progress and reports
        self.progress = Progress()
        self.status: dict[str, Any] = {}  # with the roles that have joined
        self.config: dict[str, Any] | None = None
        self.is_live = False
        self._lock = threading.RLock()
        self._versions: dict[str, tuple[int, int]] = {}  # of files, when they were read
        self._own_status: dict[str, Any] = {}
        self._joined = Joined(folder)
        self._reports: object = None
        self._summary: dict[str, Any] = {}
        self._heading = {"task": "", "seed": None}
        self._group = ""  # of runs that are seeds of one experiment, as in `dreamfleet plot`
        self._tables = self._make_tables()

    # What is new

    def refresh_summary(self) -> None:
        """Reads status and progress again if they have changed."""
        with self._lock:
            if self._has_changed("progress.json"):
                self.progress = self._read_progress()
                self.detail_version += 1
            has_new_status = self._has_changed("status.json")
            if has_new_status:
                self._own_status = parse_status(self._read("status.json"))
            if self._joined.refresh() or has_new_status:
                self.status = {**self._own_status, "roles": {**self._own_status.get("roles", {}), **self._joined.roles}}
                self.detail_version += 1
            if self._has_changed(FILENAME):
                self._heading = _read_heading(self._read(FILENAME))
                self.config, self._group = None, ""
            reports = self._list_reports_cheaply()
            if reports != self._reports:
                self._reports = reports
                self.detail_version += 1
            summary = self._summarize()
            if summary != self._summary:
                self._summary = summary
                self.version += 1

    def refresh_tables(self, budget_s: float) -> None:
        """Reads new lines of the files that somebody looks at, each for about so long."""
        with self._lock:
            for file in self._wanted_files():
                self._tables[file].refresh(budget_s)

    def want(self, metrics: Collection[str] | None = ()) -> "Run":
        """Says that somebody looks at these metrics, or at all of them (None); at least their beginning is there then.

        Of files that nobody looks at, only the beginning is read, for the names that are in it.
        """
        files = SERIES if metrics is None else {file_of(metric) for metric in metrics}
        with self._lock:
            known = self._wanted_files()
            for file, table in self._tables.items():
                if file in files:
                    self._wanted_at[file] = time.monotonic()
                    if file not in known:
                        table.refresh(READ_FIRST_S)
                elif table.rows == 0:
                    table.refresh(0.0)
        return self

    def load_config(self) -> None:
        """Reads the options, which takes a while; they are known from the next summary on."""
        if self.config is not None:
            return
        # Seeds of one experiment share what was read.
        content = self._read(FILENAME)  # refuses links that lead out
        shared = _OWN_LINES.sub(b"", content)
        with _CONFIGS_LOCK:
            if shared not in _CONFIGS:
                if len(_CONFIGS) >= MAX_CONFIGS:
                    del _CONFIGS[next(iter(_CONFIGS))]
                _CONFIGS[shared] = _read_config(self.folder.path / FILENAME) if content else ({}, "")
            config, group = _CONFIGS[shared]
        with self._lock:
            self._group = group
            self.config = {**config, "seed": _read_heading(content)["seed"]} if "seed" in config else config

    def forget_tables(self) -> None:
        """Gives the memory back; what is asked for again is read again."""
        with self._lock:
            self._tables = self._make_tables()
            self._wanted_at.update(dict.fromkeys(SERIES, -np.inf))

    # What a page asks for

    @property
    def wanted_at(self) -> float:
        """When a browser last asked for any of its series, on the monotonic clock."""
        return max(self._wanted_at.values())

    @property
    def size(self) -> int:
        """How many values are in memory."""
        return sum(table.size for table in self._tables.values())

    @property
    def is_behind(self) -> bool:
        """Whether there is more in the files that somebody looks at than was read."""
        return not all(self._tables[file].is_complete for file in self._wanted_files())

    def summary(self) -> dict[str, Any]:
        """The run in one row of a table."""
        return self._summary

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Nobody else reads its files meanwhile: what is asked for is all of one moment."""
        with self._lock:
            yield

    def cursor(self) -> list[int]:
        """Where its series end: generation and lines of each file."""
        with self._lock:
            return [number for table in self._tables.values() for number in (table.generation, table.rows)]

    @property
    def metric_count(self) -> int:
        """How many metrics there are; names are only added, unless a file is replaced."""
        with self._lock:
            return sum(len(table.names()) for table in self._tables.values())

    def metrics(self) -> list[str]:
        """The names of all metrics."""
        with self._lock:
            return list(dict.fromkeys(name for table in self._tables.values() for name in table.names()))

    def line(self, metric: str, view: View) -> tuple[Line, list[int], bool]:
        """A series with the cursor that it goes up to, and whether more is known to be in the file."""
        with self._lock:
            table = self._tables[file_of(metric)]
            line = make_line(table.points(metric), lambda points: self._xs(points, view.axis), view.window)
            return line, [table.generation, table.rows], not table.is_complete

    def new_values(
        self, since: list[int], view: View, metrics: Collection[str] | None = None
    ) -> dict[str, dict] | None:
        """What came after a cursor, by file, of these or all metrics.

        None if there is too much of it, or the file is another one.
        """
        news: dict[str, dict] = {}
        with self._lock:
            for i, (file, table) in enumerate(self._tables.items()):
                generation, row = since[2 * i : 2 * i + 2]
                if generation != table.generation or table.rows - row > 500 or row > table.rows:
                    return None
                if table.rows > row:
                    news[file] = self._new_of(table, row, view, metrics)
        return news

    def points(self, metric: str) -> Points:
        """All points of a metric; whatever is left of its file is read first."""
        with self._lock:
            table = self._tables[file_of(metric)]
            table.refresh()
            return table.points(metric)

    def last(self, metric: str) -> float | None:
        """The latest value of a metric."""
        with self._lock:
            return self._tables[file_of(metric)].last(metric)

    def reports(self) -> list[dict]:
        """Videos and signals that the run has kept."""
        return list_reports(self.folder.list)

    def logs(self) -> list[str]:
        """The names of the processes that have a log."""
        return [*self.folder.logs("logs"), *self._joined.logs()]

    # How it does it

    def _wanted_files(self) -> list[str]:
        return [file for file, wanted_at in self._wanted_at.items() if time.monotonic() - wanted_at < WANTED_S]

    def _make_tables(self) -> dict[str, Table]:
        return {file: Table(self.folder.path / file, self.folder.open) for file in SERIES}

    def _xs(self, points: Points, axis: str) -> np.ndarray:
        if axis == "hours":
            starts = [table.stamps()[1][:1] for table in self._tables.values()]
            start = min((float(times[0]) for times in starts if len(times) and np.isfinite(times[0])), default=0.0)
            return (points.time - start) / 3600
        if axis == "update":
            known = make_line(self._tables[METRICS].points(UPDATES), lambda points: points.step.astype(float), 1)
            return np.interp(points.step, known.xs, known.ys) if len(known.xs) else np.zeros(len(points.step))
        return points.step.astype(float)

    def _new_of(self, table: Table, row: int, view: View, metrics: Collection[str] | None) -> dict:
        values = {}
        for metric in table.names() if metrics is None else metrics:
            points = table.points(metric, row)
            points = Points(*(column[np.isfinite(points.value)] for column in points))
            if not len(points.row):
                continue
            columns = [points.row, self._xs(points, view.axis), points.value]
            if view.window > 1:
                columns.append(latest_means(table.points(metric).value, view.window, len(points.row)))
            has_place = np.isfinite(columns[1])  # the time of a line may be anything
            values[metric] = [column[has_place].tolist() for column in columns]
        return {"generation": table.generation, "rows": table.rows, "values": values}

    def _list_reports_cheaply(self) -> object:
        # A report changes the directory that it is in.
        return [(name, self.folder.version(f"reports/{name}")) for name in self.folder.list("reports")]

    def _summarize(self) -> dict[str, Any]:
        progress, status = self.progress, self.status
        updated = max(self._versions.get(name, (-1, -1))[1] for name in ("progress.json", "status.json")) / 1e9
        is_silent = time.time() - updated > SILENT_S
        is_complete = progress.goal().share >= 1
        state = status.get("state") or ("running" if updated > 0 else "starting")
        if state == "done" or (
            is_silent and is_complete and state not in ENDED
        ):  # without a supervisor, or an older run
            state = "complete" if is_complete else "stopped"
        is_over = state in ENDED
        self.is_live = not is_over and not is_silent
        phase = "silent" if is_silent and not is_over else find_phase(progress, {**status, "state": state})
        elapsed_s = max(progress.elapsed_s, status.get("elapsed_s", 0.0)) if self.is_live else progress.elapsed_s
        return {
            "name": self.name,
            **self._heading,
            "state": "failed" if state == "failed" else "ended" if is_over else "silent" if is_silent else state,
            "phase": phase,
            "updated": updated if is_silent else None,
            "bottleneck": self._find_bottleneck(phase) if self.is_live else "",
            "roles": len(status.get("roles", {})),
            "roles_running": sum(role.get("state") == "running" for role in status.get("roles", {}).values()),
            "group": self._group,
            "group_label": label_of(self.folder.path),
            "progress": {**vars(progress), "elapsed_s": elapsed_s},
        }

    def _find_bottleneck(self, phase: str) -> str:
        if phase == "compiling":
            return f"compiling: for {find_compilation_s(self.status):.0f} s so far"
        return find_bottleneck(self.status, self.progress)

    def _read_progress(self) -> Progress:
        content = self._read("progress.json")
        if not content:  # it is written in one piece: the run was removed, and may begin again
            return Progress()
        return parse_progress(content) or self.progress

    def _has_changed(self, name: str) -> bool:
        version = self.folder.version(name)
        if version == self._versions.get(name, (-1, -1)):
            return False
        self._versions[name] = version
        return True

    def _read(self, name: str) -> bytes:
        try:
            return self.folder.read(name)
        except OSError:
            return b""


def _read_config(path: Path) -> tuple[dict[str, Any], str]:
    """The options in a file, and what tells experiments apart, as in `dreamfleet plot`."""
    try:
        config = read_saved(path)
        return config, str(hash(group_key(config)))
    except (ConfigError, KeyError, TypeError):
        return {}, ""


def _read_heading(content: bytes) -> dict[str, Any]:
    """Task and seed without reading all options, which takes fifty times as long."""
    text = content.decode(errors="replace")
    task, seed = re.search(r"^task: (.*)$", text, re.M), re.search(r"^seed: (\d{1,18})\s*$", text, re.M)
    return {"task": task[1].strip("'\" ") if task else "", "seed": int(seed[1]) if seed else None}
