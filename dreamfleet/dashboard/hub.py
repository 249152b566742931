"""Keeps all runs up to date, once for all browsers: finds them, reads what is new, and wakes whoever waits for it."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from dreamfleet.dashboard.folders import Folder, find_runs
from dreamfleet.dashboard.run import WANTED_S, Run

TICK_S = 1.0
REST_S = 0.02  # between two ticks at least, for requests
FIND_EVERY_S = 3.0
TABLES_BUDGET_S = 0.1  # of reading in one tick, while a large file is opened
OPENING_S = 2.0  # in which a page that has just come is served first: large files and options wait
OPENING_EVERY_S = 10.0  # at most: pages that come all the time do not keep files from being read
CONFIG_BUDGET_S = 0.1
MAX_VALUES = 48_000_000  # in memory, 12 bytes each; runs that nobody looks at are forgotten first


class Hub:
    """All runs below the roots. Rests while no browser is there."""

    def __init__(self, roots: Sequence[Path], tick_s: float = TICK_S):
        self.runs: dict[str, Run] = {}
        self.version = 0  # counts ticks after which something was new
        self._roots = list(roots)
        self._tick_s = tick_s
        self._is_behind = False  # a large file is being read: there is no rest between ticks
        self._find_at = 0.0
        self._listeners = 0
        self._came_at = -OPENING_EVERY_S  # one of them, that large files waited for last
        self._asked_at = 0.0
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._news = asyncio.Event()
        self._call = asyncio.Event()  # somebody has come while the hub rested

    def ask(self) -> None:
        """Called with every request: whoever asks first after a rest gets what is there now."""
        with self._asking:  # whoever comes meanwhile waits for the same
            if not self.is_active:
                self.refresh()
            self._asked_at = time.monotonic()

    @property
    def is_active(self) -> bool:
        return self._listeners > 0 or time.monotonic() - self._asked_at < 2 * self._tick_s

    @contextlib.contextmanager
    def listening(self):
        """Keeps the hub awake."""
        self._listeners += 1
        now = time.monotonic()
        if now - self._came_at > OPENING_EVERY_S:
            self._came_at = now
        self._call.set()
        try:
            yield
        finally:
            self._listeners -= 1

    async def wait_news(self, timeout_s: float) -> None:
        """Returns after the next tick that found anything, or after so long."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._news.wait(), timeout_s)

    async def work(self) -> None:
        """Ticks for as long as somebody listens."""
        while True:
            if self._listeners == 0:
                self._call.clear()
                await self._call.wait()
            begun = time.monotonic()
            await asyncio.to_thread(self.refresh)
            news, self._news = self._news, asyncio.Event()
            news.set()
            if not self._is_opening():
                await asyncio.to_thread(self._load_configs)
            rest_s = REST_S if self._is_behind else self._tick_s - (time.monotonic() - begun)
            await asyncio.sleep(max(REST_S, rest_s))

    def refresh(self) -> None:
        """Reads whatever is new in all runs that somebody looks at."""
        with self._lock:
            now = time.monotonic()
            is_time_to_find = now >= self._find_at
            if is_time_to_find:
                self._find_at = now + FIND_EVERY_S
                self._find()
            for run in self.runs.values():
                if run.is_live or is_time_to_find:
                    run.refresh_summary()
            wanted = [run for run in self.runs.values() if now - run.wanted_at < WANTED_S]
            if self._is_opening():
                wanted = [run for run in wanted if not run.is_behind]
            for run in wanted:
                run.refresh_tables(TABLES_BUDGET_S / len(wanted))
            self._is_behind = any(run.is_behind for run in wanted)
            self._forget(now)
            self.version += 1

    def _is_opening(self) -> bool:
        return time.monotonic() - self._came_at < OPENING_S

    def _find(self) -> None:
        found = find_runs(self._roots)
        for name in self.runs.keys() - found.keys():
            del self.runs[name]
        for name, path in found.items():
            if name not in self.runs or self.runs[name].folder.path != path:
                run = Run(name, Folder(path))
                run.refresh_summary()  # before anybody sees it
                self.runs[name] = run

    def _load_configs(self) -> None:
        deadline = time.monotonic() + CONFIG_BUDGET_S
        for run in list(self.runs.values()):
            if time.monotonic() > deadline:
                return
            run.load_config()

    def _forget(self, now: float) -> None:
        sizes = {run.name: run.size for run in self.runs.values()}
        excess = sum(sizes.values()) - MAX_VALUES
        for run in sorted(self.runs.values(), key=lambda run: run.wanted_at):
            if excess <= 0 or now - run.wanted_at < WANTED_S:
                return
            run.forget_tables()
            excess -= sizes[run.name]
