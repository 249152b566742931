"""What is new for one browser, as server-sent events from a cursor: it can go on after a lost connection."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

from dreamfleet.dashboard.fleet import describe_fleet, describe_parts
from dreamfleet.dashboard.hub import Hub
from dreamfleet.dashboard.run import Run
from dreamfleet.dashboard.series import View

KEEP_ALIVE_S = 15.0


class Feed:
    """One browser's stream. It remembers only what it has sent: a slow reader costs no memory.

    `wanted` are the metrics whose values it brings: those on screen, or None for all.
    """

    def __init__(
        self,
        hub: Hub,
        names: Sequence[str],
        view: View,
        wanted: Callable[[], Collection[str] | None],
        cursor: dict[str, Any],
    ):
        self._hub = hub
        self._names = names
        self._view = view
        self._wanted = wanted
        self._cursors: dict[str, list[int]] = cursor
        self._metrics: dict[str, int] = {}  # how many names of metrics were sent
        self._versions: dict[str, int] = {}  # of summaries that were sent
        self._details: dict[str, tuple[int, dict]] = {}  # of fleets: version, and rates, which are in other files

    async def stream(self, is_over: Callable[[], bool]) -> AsyncIterator[str]:
        """Events until the server stops or the browser goes away."""
        sent_at = time.monotonic()
        with self._hub.listening():
            yield "retry: 2000\n\n"
            while True:
                if is_last := is_over():
                    await asyncio.to_thread(self._hub.refresh)  # what was written before the end was asked for
                events = await asyncio.to_thread(self._collect)
                for name, data in events:
                    yield _format(name, data, self._cursors)
                if events:
                    sent_at = time.monotonic()
                elif time.monotonic() - sent_at > KEEP_ALIVE_S:
                    sent_at = time.monotonic()
                    yield ": still here\n\n"
                if is_last:
                    yield _format("bye", {}, self._cursors)
                    return
                await self._hub.wait_news(KEEP_ALIVE_S)

    def _collect(self) -> list[tuple[str, Any]]:
        runs = dict(self._hub.runs)
        events: list[tuple[str, Any]] = []
        if gone := self._versions.keys() - runs.keys():
            for name in gone:
                self._forget(name)
        changed = [run for run in runs.values() if self._versions.get(run.name) != run.version]
        if changed or gone:
            self._versions |= {run.name: run.version for run in changed}
            events.append(("runs", {"changed": [run.summary() for run in changed], "gone": sorted(gone)}))
        for name in self._names:
            if name in runs:
                events += self._collect_run(runs[name])
        return events

    def _forget(self, name: str) -> None:
        """A run that comes back may be another one: all of it is sent again."""
        del self._versions[name]
        self._metrics.pop(name, None)
        self._details.pop(name, None)
        if name in self._cursors:
            self._cursors[name] = [-1 for _ in self._cursors[name]]

    def _collect_run(self, run: Run) -> list[tuple[str, Any]]:
        is_first = run.name == self._names[0]
        with run.resting():  # or there would be values of names that were not sent
            events = self._collect_values(run, is_first)
        if is_first and self._details.get(run.name) != (details := (run.detail_version, describe_parts(run))):
            self._details[run.name] = details
            events.append(("fleet", {"run": run.name, **describe_fleet(run), "reports": run.reports()}))
        return events

    def _collect_values(self, run: Run, is_first: bool) -> list[tuple[str, Any]]:
        wanted = self._wanted()
        run.want(None if is_first or wanted is None else [*wanted, *self._view.needs])
        now = run.cursor()
        wanted = self._wanted()  # again: a page may have said so after that and before the last line was read
        events: list[tuple[str, Any]] = []
        if self._metrics.get(run.name) != (count := run.metric_count):
            self._metrics[run.name] = count
            events.append(("names", {"run": run.name, "metrics": run.metrics()}))
        before = self._cursors.setdefault(run.name, now)
        if now != before:
            news = run.new_values(before, self._view, wanted)
            self._cursors[run.name] = now
            if news is None:
                events.append(("reload", {"run": run.name}))
            else:
                events += [("rows", {"run": run.name, "file": file, **data}) for file, data in news.items()]
        return events


def _format(name: str, data: Any, cursors: dict[str, list[int]]) -> str:
    # The browser sends the id back when it connects again.
    return f"event: {name}\nid: {json.dumps(cursors)}\ndata: {json.dumps(data)}\n\n"
