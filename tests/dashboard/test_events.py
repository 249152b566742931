"""The stream of one browser: what it brings belongs together, and what was written before its end is in it."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dreamfleet.dashboard import run as run_module
from dreamfleet.dashboard.events import Feed
from dreamfleet.dashboard.folders import Folder
from dreamfleet.dashboard.hub import Hub
from dreamfleet.dashboard.run import Run
from dreamfleet.dashboard.series import View
from tests.dashboard.runs import append, write_run, write_status


class InterruptedRun(Run):
    """A run to which a line is added, and read by somebody else if that is possible, while its names are counted."""

    is_interrupted = False

    @property
    def metric_count(self):
        count = super().metric_count
        if self.is_interrupted:
            append(self.folder.path / "metrics.jsonl", [(5000, {"train/new": 3.0})])
            other = threading.Thread(target=self._read_if_free)
            other.start()
            other.join()
        return count

    def _read_if_free(self):
        if self._lock.acquire(blocking=False):
            self.refresh_tables(60.0)
            self._lock.release()


@pytest.fixture
def hub(tmp_path):
    write_run(tmp_path / "run")
    hub = Hub([tmp_path])
    hub.ask()
    return hub


def collect(feed: Feed, is_over=lambda: True) -> list[tuple[str, dict]]:
    """The events of a stream that ends when it is asked whether it is over."""

    async def read() -> list[str]:
        return [event async for event in feed.stream(is_over)]

    with ThreadPoolExecutor(1) as thread:  # that of the tests may be the one in which a browser has its loop
        parts = [event.splitlines() for event in thread.submit(asyncio.run, read()).result()[1:]]
    return [(name.partition(": ")[2], json.loads(data.partition(": ")[2])) for name, _, data, *_ in parts]


def test_the_last_state_is_that_of_the_end(tmp_path, hub):
    write_status(tmp_path / "run", "running", agent={})
    hub.runs["run"].refresh_summary()
    assert hub.runs["run"].is_live

    def is_over() -> bool:
        write_status(tmp_path / "run", "stopped", agent={})
        return True

    events = collect(Feed(hub, ["run"], View(), lambda: None, {}), is_over)
    assert [run["phase"] for name, data in events if name == "runs" for run in data["changed"]] == ["stopped"]
    assert events[-1][0] == "bye"


def test_rates_of_the_fleet_come_when_a_large_file_is_read(tmp_path, hub, monkeypatch):
    """Also of a run that is over, of which nothing else changes."""
    monkeypatch.setattr(run_module, "READ_FIRST_S", 0.0)
    append(tmp_path / "run" / "metrics.jsonl", [(i, {"train/m0": 1.0}) for i in range(5000)])
    append(tmp_path / "run" / "metrics.jsonl", [(5000, {"actor/steps_per_s": 77.0})])
    feed = Feed(hub, ["run"], View(), lambda: None, {})

    def find_rates() -> list[float | None]:
        return [data["parts"]["actor"]["rate"] for name, data in collect(feed) if name == "fleet"]

    assert find_rates() == [None]
    hub.runs["run"].refresh_tables(60.0)
    assert find_rates() == [77.0]


def test_a_name_comes_with_or_before_its_values(tmp_path, hub):
    run = hub.runs["run"] = InterruptedRun("run", Folder(tmp_path / "run"))
    run.refresh_summary()
    feed = Feed(hub, ["run"], View(), lambda: None, {})
    collect(feed)
    run.is_interrupted = True
    events = collect(feed)
    run.is_interrupted = False
    names, seen = set(), []
    for event, data in [*events, *collect(feed)]:
        names |= set(data["metrics"]) if event == "names" else set()
        seen += [(name, name in names) for name in data["values"]] if event == "rows" else []
    assert seen == [("train/new", True)]


def test_a_metric_that_is_watched_while_a_line_is_read_is_in_it(tmp_path, hub):
    run, watched = hub.runs["run"], set()

    def wanted() -> set[str]:
        before = set(watched)
        if is_open and not watched:  # a page asks for it, and then a line with it comes
            watched.add("train/m1")
            append(tmp_path / "run" / "metrics.jsonl", [(5000, {"train/m1": 2.0})])
            run.refresh_tables(60.0)
        return before

    is_open, feed = False, Feed(hub, ["run"], View(), wanted, {})
    collect(feed)
    is_open = True
    (values,) = [data["values"] for event, data in collect(feed) if event == "rows"]
    assert values == {"train/m1": [[100], [5000.0], [2.0]]}
