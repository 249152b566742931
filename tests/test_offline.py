"""Training from recorded episodes as a user does it: alone, with losses on held-out ones, and mixed with fresh ones."""

import contextlib
import io
import signal

import numpy as np
import pytest

from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.cli import main
from dreamfleet.metrics.reading import read_series
from dreamfleet.replay.archive import Archive
from tests.fleet import read_inserts
from tests.replay.test_frozen import digest
from tests.test_runs import SMALL, finish, start, wait_step

__all__ = ["start"]  # a fixture

pytestmark = pytest.mark.distributed


def run(*words: object) -> str:
    """Runs a command in this process and returns what it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main([str(word) for word in words]) == 0, output.getvalue()
    return output.getvalue()


@pytest.fixture
def recorded(tmp_path):
    """The log directory of a random agent, whose steps have no states of another one."""
    run("train", *SMALL, "--run.mode", "serial", "--steps", 400, "--logdir", tmp_path / "recorded")
    return tmp_path / "recorded"


@pytest.mark.parametrize("mode", ["parallel", "serial"])
def test_training_from_episodes_alone(start, recorded, tmp_path, mode):
    logdir, held_out = tmp_path / "run", tmp_path / "run" / "replay" / "held_out"
    run("replay", "export", recorded, tmp_path / "episodes")
    run("replay", "import", tmp_path / "episodes", logdir, "--held-out", "0.3")
    before = digest(held_out)
    words = ["train", "--preset", "debug", "--task", "dummy_vector", "--run.mode", mode, "--logdir", logdir]
    # The rows of an evaluation environment have states, those that were held out have none.
    words += ["--envs", 0, "--eval-envs", 1, "--run.report_every", 0.2, "--run.log_every", 0.2, "--updates", 40]
    process = start(*words)
    output = finish(process)
    checkpoint = Checkpoints(logdir).latest()
    assert process.returncode == 0 and checkpoint, output
    where = f"update 40/40 | checkpoint {checkpoint.name}"
    assert output.splitlines()[-1] == f"complete: {where}"
    assert checkpoint.manifest["updates"] == 40 and read_inserts(logdir) == 0
    metrics = read_series(logdir / "metrics.jsonl")
    for loss in ("vector", "reward", "cont", "dyn", "total"):
        for kind in ("train", "report", "eval"):
            assert len(metrics[f"{kind}/loss/{loss}"].value), "the held-out loss is logged like the others"
    steps = metrics["train/loss/total"].step
    # The logger may make one line of 40 quick updates; in a run without steps, only updates can be 40.
    assert steps[0] > 0 and (np.diff(steps) > 0).all() and steps[-1] == 40, "metrics go by updates"
    assert "eval_episode/score" in read_series(logdir / "eval_scores.jsonl")
    assert digest(held_out) == before
    assert finish(start(*words)).splitlines()[-1].startswith(f"complete already: {where}")


def test_a_run_mixes_in_the_steps_of_another_that_goes_on(start, tmp_path):
    other, logdir = tmp_path / "other", tmp_path / "run"
    writing = start("train", *SMALL, "--logdir", other)
    wait_step(other, 300, writing)
    output = finish(
        start("train", *SMALL, "--replay.mix", other, "--run.log_every", 0.1, "--steps", 600, "--logdir", logdir)
    )
    checkpoint = Checkpoints(logdir).latest()
    assert checkpoint and "complete: step " in output, output
    at_end, steps = read_inserts(other), Archive(other).steps
    wait_step(other, at_end + 50, writing)  # it was not held up
    writing.send_signal(signal.SIGINT)
    finish(writing)
    # Of its capacity, what is free in the block that each environment is filling may be missing.
    least = 1000 - 2 * BLOCK_ROWS
    assert writing.returncode == 130 and Archive(other).steps >= min(steps, least)
    state, counts = checkpoint.read("replay")["train"]["mix"], checkpoint.manifest["counts"]
    dealt = state["dealt"]
    assert 2 * dealt["other"]["train"] == dealt["all"]["train"] >= counts["samples"] > 0
    metrics = read_series(logdir / "metrics.jsonl")
    assert metrics["replay/train/mix_steps"].value[-1] >= 300
    assert metrics["replay/train/updates_ignored"].value[-1] == 0
    assert metrics["replay/reference_batches"].value[-1] > 0
    assert counts["steps"] == checkpoint.step, "the other's steps are not of this run"
    assert "requesting rows instead" not in (logdir / "logs" / "agent.log").read_text()


def test_a_serial_run_mixes_alike_for_a_seed(recorded, tmp_path):
    words = [*SMALL, "--run.mode", "serial", "--replay.mix", recorded, "--replay.mix_share", 0.25, "--batch_size", 4]
    for name in ("one", "two"):
        run("train", *words, "--steps", 300, "--logdir", tmp_path / name)
    one, two = (Checkpoints(tmp_path / name).latest() for name in ("one", "two"))
    assert one and two
    mixes = [checkpoint.read("replay")["train"]["mix"] for checkpoint in (one, two)]
    assert mixes[0] == mixes[1]
    assert mixes[0]["dealt"]["other"]["train"] == mixes[0]["dealt"]["all"]["train"] // 4 > 0
