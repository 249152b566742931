"""One run of a task to its end, in its log directory, where it is taken up again if it was interrupted."""

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from benchmarks.learning.tasks import Task, Variant
from dreamfleet.base.files import replace_file
from dreamfleet.launch.supervise.status import read_status
from dreamfleet.results.curves import RunCurve, load_run_curve

LOOK_S = 1.0
KILLED = ("env", "agent", "replay", "logger")  # roles, in turns


def run_to_end(logdir: Path, task: Task, variant: Variant, seed: int) -> dict:
    """Trains, unless that is done, and returns what is to be known of the run."""
    result = logdir / "benchmark.json"
    before = json.loads(result.read_text()) if result.is_file() else {"minutes": 0.0, "peak_mb": 0.0, "legs": 0}
    ends = [task.steps * number // (variant.resumes + 1) for number in range(1, variant.resumes + 2)]
    for steps in ends[before["legs"] :]:
        before = _run_leg(_command(logdir, task, variant, seed, steps), logdir, variant, before)
        replace_file(result, json.dumps(before))
    curve = load_run_curve(logdir, task.score, "step")
    points = {str(point): score_at(curve, point, task.window) for point in task.points}
    return {"points": points, "area": area_under(curve, task), **before}


def score_at(curve: RunCurve, point: int, window: int) -> float:
    """The mean score of the episodes in the last `window` steps before a point; NaN without any."""
    is_near = (curve.xs > point - window) & (curve.xs <= point)
    return float(curve.ys[is_near].mean()) if is_near.any() else float("nan")


def area_under(curve: RunCurve, task: Task) -> float:
    """The area under the learning curve as a mean score, every step counting the same."""
    edges = np.linspace(0, task.steps, 61)
    means = [score_at(curve, int(edge), int(edges[1])) for edge in edges[1:]]
    return float(np.nanmean(means))


def _command(logdir: Path, task: Task, variant: Variant, seed: int, steps: int) -> list[str]:
    options = {"logdir": logdir, "seed": seed, "run.steps": steps, **task.options, **variant.options}
    if variant.resumes:  # by default as many steps are kept as are made, which would be those of this leg
        options["replay.capacity"] = task.steps
    words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
    presets = ["--preset", *task.presets] if task.presets else []
    return [sys.executable, "-m", "dreamfleet", "train", *presets, *words]


def _run_leg(command: list[str], logdir: Path, variant: Variant, before: dict) -> dict:
    """One start of the command, until it is complete."""
    start, peak_mb, killed = time.monotonic(), before["peak_mb"], itertools.cycle(KILLED)
    next_kill = start + variant.kill_every_s
    logdir.mkdir(parents=True, exist_ok=True)
    with (logdir / "train.log").open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    pause = threading.Event()
    try:
        while process.poll() is None:
            peak_mb = max(peak_mb, _memory_mb(process.pid))
            if variant.kill_every_s and time.monotonic() > next_kill:
                next_kill = time.monotonic() + variant.kill_every_s
                _kill_role(logdir, next(killed))
            pause.wait(LOOK_S)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\nfailed; see {logdir / 'train.log'}")
    minutes = before["minutes"] + (time.monotonic() - start) / 60
    return {"minutes": minutes, "peak_mb": peak_mb, "legs": before["legs"] + 1}


def _kill_role(logdir: Path, kind: str) -> None:
    roles = read_status(logdir)["roles"]
    pids = [role["pid"] for name, role in roles.items() if name.startswith(kind) and role["state"] == "running"]
    for pid in pids[:1]:
        psutil.Process(pid).kill()


def _memory_mb(pid: int) -> float:
    """What a process and its descendants hold; pages that they share count once."""
    total = 0
    try:
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            total += process.memory_full_info().pss
    except psutil.Error:  # one of them has just ended: the next look counts again
        return 0.0
    return total / 2**20
