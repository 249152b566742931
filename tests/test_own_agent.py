"""The agent in `examples/`, run as its user would, and held against the documented methods."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dreamfleet.agent.contract import Agent
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.metrics.reading import read_series
from tests.fleet import DEADLINE_S, read_jsonl

pytestmark = pytest.mark.distributed

EXAMPLES = Path(__file__).parents[1] / "examples"
DOCS = Path(__file__).parents[1] / "docs"
METHODS = [name for name in vars(Agent) if not name.startswith("_")]


def train(logdir: Path, *options: object) -> None:
    agent = ("--agent", "own_agent:TableAgent", "--preset", "cartpole")
    command = [sys.executable, "-m", "dreamfleet", "train", *agent, "--logdir", logdir, *options]
    result = subprocess.run(map(str, command), capture_output=True, text=True, timeout=DEADLINE_S, cwd=EXAMPLES)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_example_learns(tmp_path):
    train(tmp_path, "--run.mode", "serial", "--steps", 6000)  # the same for a seed, so it learns every time
    scores = read_series(tmp_path / "scores.jsonl")["episode/score"].value
    assert np.mean(scores[:10]) < 30 and np.mean(scores[-10:]) > 80, scores


def test_the_example_in_a_fleet(tmp_path):
    options = ("--run.log_every", 0.5, "--run.report_every", 0.5, "--eval-envs", 1)
    train(tmp_path, "--steps", 2000, *options)
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint is not None and (checkpoint.read("agent")["values"] != 0).any()
    train(tmp_path, "--steps", 3000, *options)
    keys = {key for line in read_jsonl(tmp_path / "metrics.jsonl") for key in line}
    assert {"train/error", "train/value", "report/visited", "eval_episode/score"} <= keys
    assert Checkpoints(tmp_path).latest().manifest["updates"] > checkpoint.manifest["updates"], "it was resumed"


def test_the_example_has_the_documented_methods_only():
    source, page = (EXAMPLES / "own_agent.py").read_text(), (DOCS / "own_agent.md").read_text()
    for name in METHODS:
        assert f"def {name}(" in source and f"`{name}(" in page, name
