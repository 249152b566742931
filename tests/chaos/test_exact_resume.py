"""A serial run in legs that was stopped and taken up again is, to the bit, the run that nobody stopped."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.replay.archive import Archive
from tests.test_runs import finish, start, wait_step  # noqa: F401  # `start` is a fixture

pytestmark = pytest.mark.distributed

LEG = 100
RANDOM = ["--agent", "dreamfleet.agent.random:RandomAgent", "--task", "dummy_vector"]
DREAMER = ["--agent", "dreamfleet.agent.dreamer:Dreamer", "--dreamer.size", "debug", "--task", "gym_CartPole-v1"]
# Averages over a time on the clock, and what is measured of the machine, are not of the run itself.
TIMED = ("time", "usage", "per_s", "elapsed", "_s/", "learner/replay", "connections", "replay/")


@pytest.fixture(
    params=[pytest.param(RANDOM, id="random"), pytest.param(DREAMER, id="dreamer", marks=pytest.mark.chaos)]
)
def train(request, start, tmp_path):  # noqa: F811
    def run(name: str, steps: int, **options):
        words = [word for key, value in options.items() for word in (f"--run.{key}", value)]
        fixed = ["--preset", "debug", "--run.mode", "serial", "--run.leg", LEG, "--run.train_ratio", 8]
        return start("train", *fixed, *request.param, "--steps", steps, "--logdir", tmp_path / name, *words)

    return run


def run_to_end(process, exit_code: int = 0) -> None:
    output = finish(process)
    assert process.returncode == exit_code, output


@pytest.mark.timeout(1500)
def test_a_resumed_run_is_the_unbroken_one(train, tmp_path):
    run_to_end(train("broken", LEG))
    asked = train("broken", 10**6)  # is asked to stop on the way, which it does at the end of a leg
    wait_step(tmp_path / "broken", LEG + 1, asked)
    asked.send_signal(signal.SIGTERM)
    run_to_end(asked, 128 + signal.SIGTERM)
    at_stop = Checkpoints(tmp_path / "broken").latest()
    assert at_stop and at_stop.step > LEG
    for name in ("broken", "whole"):
        run_to_end(train(name, at_stop.step + 2 * LEG))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert_same(read_parameters(whole), read_parameters(broken))
    assert_same(read_replay(whole), read_replay(broken))
    assert read_metrics(whole) == read_metrics(broken)
    assert read_scores(whole) == read_scores(broken)
    assert len(read_scores(whole)) > 5


def assert_same(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key], err_msg=key)


def read_parameters(logdir: Path) -> dict:
    checkpoint = Checkpoints(logdir).latest()
    assert checkpoint
    assert checkpoint.manifest["updates"] > 20
    return {**checkpoint.read("agent"), "updates": checkpoint.manifest["updates"]}


def read_replay(logdir: Path) -> dict:
    archive = Archive(logdir)
    assert archive.steps >= 4 * LEG
    streams = [archive.read(*trajectory) for trajectory in archive.trajectories()]
    return {f"{i}/{key}": value for i, rows in enumerate(streams) for key, value in rows.items() if key != "stepid"}


def read_metrics(logdir: Path) -> list[dict]:
    lines = [json.loads(line) for line in (logdir / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) >= 4
    return [{k: v for k, v in line.items() if not any(word in k for word in TIMED)} for line in lines]


def read_scores(logdir: Path) -> list[dict]:
    lines = [json.loads(line) for line in (logdir / "scores.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "time"} for line in lines]
