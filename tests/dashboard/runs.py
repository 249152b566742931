"""Log directories as runs leave them, for tests that need no process of their own."""

import json
import os
import time
from pathlib import Path

import numpy as np

from dreamfleet.metrics.progress import Progress, write_progress
from dreamfleet.options import load_options, save_options
from tests.fleet import DEADLINE_S


def write_run(logdir: Path, rows: int = 100, metrics: int = 5, scores: int = 40, **options) -> Path:
    """A finished run."""
    save_options(load_options({"task": "gym_CartPole-v1", "logdir": str(logdir), **options}))
    rng = np.random.default_rng(rows)
    append(
        logdir / "metrics.jsonl", [(10 * i, {f"train/m{k}": rng.normal() for k in range(metrics)}) for i in range(rows)]
    )
    append(logdir / "scores.jsonl", [(10 * i, {"episode/score": float(i), "episode/length": 7}) for i in range(scores)])
    write_progress(logdir, Progress(step=10 * rows, total_steps=10 * rows, score=12.5, updates=5))
    write_status(logdir, "complete")
    return logdir


def append(path: Path, lines: list[tuple[int, dict]]) -> None:
    """Adds lines as the logger does."""
    with path.open("a") as file:
        file.writelines(json.dumps({"step": step, "time": 1000.0 + step, **values}) + "\n" for step, values in lines)


def write_status(logdir: Path, state: str, **roles: dict) -> None:
    """The status of the supervisor; a role is running unless something else is said."""
    usual = {"pid": 1, "state": "running", "restarts": 0, "heartbeat_age_s": 0.1, "waits": [], "exit": None}
    status = {"time": time.time(), "state": state, "roles": {name: {**usual, **role} for name, role in roles.items()}}
    logdir.mkdir(parents=True, exist_ok=True)
    (logdir / "status.json").write_text(json.dumps(status))
    keep_alive(logdir)


def keep_alive(logdir: Path) -> None:
    """Lets a status be a sign of life for as long as a test may take."""
    later = time.time() + DEADLINE_S
    os.utime(logdir / "status.json", (later, later))
