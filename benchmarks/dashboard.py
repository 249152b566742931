"""The dashboard on many large runs, and what it costs a run that is looked at.

`python -m benchmarks.dashboard --json FILE` writes 50 runs x 200 metrics x 20,000 lines (7 GB) into a folder, opens the
page in chromium and adds a line a second to ten runs; then it measures env steps/s of a fleet with and without an open
dashboard, in turns. What the server costs is told in CPU seconds, which other load changes less than time.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from dreamfleet.metrics.progress import Progress, read_progress, write_progress
from dreamfleet.options import load_options, save_options

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
VIEWPORT = {"width": 1280, "height": 900}
LIVE_RUNS = 10  # that get a line every second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--metrics", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the page stays open")
    parser.add_argument("--turns", type=int, default=4, help="pairs of runs with and without a dashboard")
    parser.add_argument("--turn-s", type=float, default=40.0)
    parser.add_argument("--ten-s", type=float, default=60.0, help="how long a page with ten live runs stays open")
    parser.add_argument("--folder", type=Path, help="keep the runs there, and use them again")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if args.seconds:
            many = args.folder or root / "many"
            if not many.exists():
                make_runs(many, args.runs, args.metrics, args.rows)
            make_runs(root / "few", 1, 5, 100)
            cases += measure_first_view(root / "few", "one run x 5 metrics x 100 lines")
            cases += measure_first_view(many, f"{args.runs} runs x {args.metrics} metrics x {args.rows} lines")
            cases += measure_live(many, "overview of one", "run=run00", args.seconds, args.metrics, args.rows)
            ten = "&".join(f"run=run{i:02d}" for i in range(LIVE_RUNS)) + "&tab=metrics&q=group0"
            cases += measure_live(many, "metrics of all ten", ten, args.ten_s, args.metrics, args.rows)
        if args.turns:
            cases += measure_cost(root / "cost", args.turns, args.turn_s)
    if args.json:
        result = {"name": "dashboard", "machine": platform.platform(), "load": os.getloadavg(), "cases": cases}
        args.json.write_text(json.dumps(result, indent=1))


def make_runs(root: Path, runs: int, metrics: int, rows: int) -> None:
    """Finished runs with the same curves, which are files of their own."""
    rng = np.random.default_rng(0)
    names = ["learner/updates", *(f"train/group{k % 10}/metric{k:03d}" for k in range(1, metrics))]
    first = root / "run00" / "metrics.jsonl"
    for i in range(runs):
        logdir = root / f"run{i:02d}"
        save_options(load_options({"task": "dummy_vector", "logdir": str(logdir), "seed": i}))
        if i:
            shutil.copyfile(first, logdir / first.name)
        else:
            with first.open("w") as file:
                for row, values in enumerate(rng.normal(size=(rows, metrics)).cumsum(0).round(4).tolist()):
                    file.write(format_line(row, names, values))
        with (logdir / "scores.jsonl").open("w") as file:
            scores = rng.normal(size=(rows // 10, 2)).cumsum(0).round(2).tolist()
            for row, values in enumerate(scores):
                file.write(format_line(10 * row, ["episode/score", "episode/length"], values))
        write_progress(logdir, Progress(step=10 * rows, total_steps=20 * rows, score=1.0, updates=5))


def format_line(row: int, names: list[str], values: list[float]) -> str:
    stamp = {"step": 10 * row, "time": 1.7e9 + row}
    return json.dumps({**stamp, **dict(zip(names, values, strict=True))}) + "\n"


def measure_first_view(root: Path, what: str) -> list[dict[str, Any]]:
    """From the address to the curve of the score on screen, in a browser that has just been opened."""
    with serving(root) as (server, address), browsing() as browser:
        process, page = psutil.Process(server.pid), browser.new_page(viewport=VIEWPORT)
        begun, cpu_s = time.monotonic(), cpu_of(process)
        page.goto(f"{address}?run=run00")
        wait_for_chart(page, "episode/score")
        wall_s, cpu_s = time.monotonic() - begun, cpu_of(process) - cpu_s
        page.wait_for_selector(".chart[data-metric='episode/score'][data-drawn]")
        drawn_s = time.monotonic() - begun
    return [
        case(f"first view: {what}", "s", wall_s, "lower"),
        case("  of the server", "CPU s", cpu_s, "lower"),
        case("  until the chart has axes", "s", drawn_s, "lower"),
    ]


def measure_live(root: Path, what: str, query: str, seconds: float, metrics: int, rows: int) -> list[dict[str, Any]]:
    """A page that stays open while ten runs get a line each second."""
    names = ["learner/updates", *(f"train/group{k % 10}/metric{k:03d}" for k in range(1, metrics))]
    with serving(root) as (server, address), browsing() as browser:
        page = browser.new_page(viewport=VIEWPORT)
        page.goto(f"{address}?{query}")
        for _ in range(2):  # again after all files have been read
            wait_for_chart(page, "train/group0/metric010" if "tab=metrics" in query else "episode/score")
            wait_for_rest(psutil.Process(server.pid))
        watch = Watch(psutil.Process(server.pid), page)
        for _ in range(int(seconds)):
            add_lines(root, names, rows + int(time.time()) % 10**7)
            page.wait_for_timeout(1000)
            watch.look()
        share = watch.share()
    name = f"{what}, {LIVE_RUNS} runs x {metrics} metrics at 1 Hz for {seconds:.0f} s"
    return [
        case(name, "% of a core", 100 * share, "lower"),
        case("  memory of the server at first", "MB", watch.server[0], "lower"),
        case("  growth of the server", "MB", watch.growth(watch.server), "lower"),
        case("  growth of the page (JavaScript heap)", "MB", watch.growth(watch.page_mb), "lower"),
    ]


def wait_for_chart(page: Any, metric: str) -> None:
    chart = f".chart[data-metric='{metric}']"
    page.wait_for_function("(chart) => Number(document.querySelector(chart)?.dataset.points) > 0", arg=chart)


def wait_for_rest(process: psutil.Process) -> None:
    """Until the server has read what it was asked for, and uses no more than a little of a core."""
    before = -1.0
    while (now := cpu_of(process)) - before > 0.5:
        before = now
        time.sleep(5.0)


def cpu_of(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


def add_lines(root: Path, names: list[str], row: int) -> None:
    for i in range(LIVE_RUNS):
        with (root / f"run{i:02d}" / "metrics.jsonl").open("a") as file:
            file.write(format_line(row, names, [float(row)] * len(names)))
        write_progress(root / f"run{i:02d}", Progress(step=10 * row, total_steps=20 * row, score=1.0, updates=row))


class Watch:
    """CPU and memory of the server and of the page, once a second."""

    def __init__(self, process: psutil.Process, page: Any):
        self._process = process
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")
        self._start = time.monotonic(), cpu_of(process)
        self.server: list[float] = []
        self.page_mb: list[float] = []

    def look(self) -> None:
        self.server.append(self._process.memory_info().rss / 2**20)
        if len(self.server) % 30 == 1:
            self._session.send("HeapProfiler.collectGarbage")
            metrics = {
                entry["name"]: entry["value"] for entry in self._session.send("Performance.getMetrics")["metrics"]
            }
            self.page_mb.append(metrics["JSHeapUsedSize"] / 2**20)

    def share(self) -> float:
        return (cpu_of(self._process) - self._start[1]) / (time.monotonic() - self._start[0])

    def growth(self, values: list[float]) -> float:
        """From the first to the last quarter, after the first minute or so has settled."""
        part = max(1, len(values) // 4)
        return statistics.median(values[-part:]) - statistics.median(values[part : 2 * part] or values[:part])


def measure_cost(root: Path, turns: int, turn_s: float) -> list[dict[str, Any]]:
    """Env steps/s of eight single environments and a random agent without a limit, with an open page and without."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    shares: list[tuple[float, float]] = []
    for turn in range(turns):
        for is_shown in (False, True) if turn % 2 else (True, False):
            rate, *used = measure_rate(root / f"{turn}{is_shown}", is_shown, turn_s)
            rates[is_shown].append(rate)
            shares += [(used[0], used[1])] if is_shown else []
    without, with_page = (statistics.median(rates[is_shown]) for is_shown in (False, True))
    spread = max(rates[False]) / min(rates[False]) - 1
    server, browser = (statistics.median(share) for share in zip(*shares, strict=True))
    return [
        case("env steps/s without a dashboard", "steps/s", without, "higher"),
        {**case("env steps/s with an open dashboard", "steps/s", with_page, "higher"), "baseline": without},
        case("  of the server", "% of a core", 100 * server, "lower"),
        case("  of the browser, on the same machine", "% of a core", 100 * browser, "lower"),
        case("spread of the turns without a dashboard", "%", 100 * spread, "lower"),
    ]


def measure_rate(logdir: Path, is_shown: bool, turn_s: float) -> tuple[float, float, float]:
    """Env steps/s, and what the server and the browser take of a core."""
    words = ["--preset", "random", "--task", "dummy_vector", "--envs", "8", "--run.train_ratio", "0", "--steps", "1e9"]
    command = [sys.executable, "-m", "dreamfleet", "train", *words, "--logdir", str(logdir)]
    with contextlib.ExitStack() as stack:
        logdir.mkdir(parents=True)
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        stack.callback(stop, run)
        while not (progress := read_progress(logdir)) or progress.step < 1000:
            time.sleep(0.2)
        server: list[psutil.Process] = []
        if is_shown:
            process, address = stack.enter_context(serving(logdir))
            server = [psutil.Process(process.pid)]
            page = stack.enter_context(browsing()).new_page(viewport=VIEWPORT)
            page.goto(address)
            wait_for_chart(page, "episode/score")
        browser = [child for child in psutil.Process().children(recursive=True) if "chrom" in child.name()]
        begun, start, used = time.monotonic(), progress_step(logdir), [cpu_of_all(server), cpu_of_all(browser)]
        time.sleep(turn_s)
        seconds = time.monotonic() - begun
        shares = [(cpu_of_all(side) - before) / seconds for side, before in zip((server, browser), used, strict=True)]
        return (progress_step(logdir) - start) / seconds, shares[0], shares[1]


def cpu_of_all(processes: list[psutil.Process]) -> float:
    return sum(map(cpu_of, processes))


def progress_step(logdir: Path) -> int:
    progress = read_progress(logdir)
    return progress.step if progress else 0


@contextlib.contextmanager
def browsing() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        browser.new_page().goto("about:blank")  # so that its own start is not measured
        yield browser
        browser.close()


@contextlib.contextmanager
def serving(root: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    command = [sys.executable, "-m", "dreamfleet", "dashboard", str(root), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        yield server, server.stdout.readline().split()[-1]
    finally:
        stop(server)


def stop(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(120)


def case(name: str, unit: str, value: float, better: str) -> dict[str, Any]:
    print(f"{name:<70} {value:>10.3f} {unit}", flush=True)
    return {"case": name, "unit": unit, "better": better, "ours": value, "baseline": None, "ratio": None}


if __name__ == "__main__":
    main()
