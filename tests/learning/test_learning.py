"""The agent learns: probe environments with known answers, and CartPole through the whole fleet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning.runs import run_to_end
from benchmarks.learning.tasks import TASKS, VARIANTS
from dreamfleet.testing import PROBES

pytestmark = [pytest.mark.learning, pytest.mark.distributed, pytest.mark.timeout(1800)]

OF_OTHER_TESTS = (
    "XLA_FLAGS",
    "JAX_COMPILATION_CACHE_DIR",
)  # their programs are compiled quickly, not well


def train(logdir: Path, *options: str) -> list[dict]:
    """Runs `dreamfleet train` to its end and returns the training and evaluation episodes."""
    environ = {key: value for key, value in os.environ.items() if key not in OF_OTHER_TESTS}
    command = [sys.executable, "-m", "dreamfleet", "train", "--preset", "tiny", "--logdir", str(logdir), *options]
    subprocess.run(command, env=environ, check=True, timeout=1700)
    files = (logdir / "scores.jsonl", logdir / "eval_scores.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.parametrize("name", PROBES)
def test_probe(name, tmp_path, monkeypatch):
    for variable in OF_OTHER_TESTS:
        monkeypatch.delenv(variable, raising=False)
    task = TASKS[f"probe_{name}"]
    result = run_to_end(tmp_path, task, VARIANTS["fleet"], seed=0)
    assert result["points"][str(task.steps)] > task.bar, (tmp_path / "train.log").read_text()


def test_cartpole_through_the_fleet(tmp_path):
    episodes = train(tmp_path, "--preset", "cartpole")
    scores = [episode["episode/score"] for episode in episodes]
    means = np.convolve(scores, np.full(20, 1 / 20), "valid")
    assert means.max() >= 475, means.max()
    first = episodes[int((means >= 475).argmax()) + 19]
    minutes = (first["time"] - episodes[0]["time"]) / 60
    print(f"a mean of 475 at step {first['step']} after {minutes:.1f} minutes; {means[-1]:.0f} at the end")
    assert means[-1] >= 400, means[-1]
