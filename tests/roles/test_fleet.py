"""Whole fleets on real processes: every sequence contiguous, every carry right, and runs that end and resume."""

import functools
from pathlib import Path

import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.launch.serial import run_serial
from dreamfleet.options import read_args
from dreamfleet.testing import CountingAgent
from tests.fleet import (
    count_rebuilds,
    eventually,
    gated_fleet,
    make_args,
    make_factories,
    make_store,
    read_inserts,
    read_jsonl,
    running_fleet,
)

pytestmark = pytest.mark.distributed

STEPS = {"auto": 1500, "zmq": 1500, "portal": 200}  # portal's clients spin: a fleet makes a few dozen steps a second


@pytest.mark.parametrize("transport", ["auto", "zmq", "portal"])
@pytest.mark.parametrize("carry_kind", ["array", "list"])
def test_counting_agent_finds_nothing_wrong(tmp_path, transport, carry_kind):
    args = make_args(tmp_path, transport=transport, steps=STEPS[transport])
    with running_fleet(args, functools.partial(CountingAgent, carry_kind)) as fleet:
        fleet.join()
        assert fleet.status()["state"] == "complete"
    assert count_rebuilds(tmp_path) == 0
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint is not None
    assert checkpoint.step >= args.steps
    assert int(checkpoint.read("agent")["trained"]) == checkpoint.manifest["updates"] > 20
    assert set(checkpoint.parts) == {"agent", "replay", "logger"}


@pytest.mark.parametrize("options", [{"consec_train": 2}, {"envs_per_worker": 3, "envs": 6}, {"actor_threads": 2}])
def test_other_shapes_of_a_fleet(tmp_path, options):
    with running_fleet(make_args(tmp_path, **options)) as fleet:
        fleet.join()
    assert read_inserts(tmp_path) >= 1500
    assert count_rebuilds(tmp_path) == 0


def test_agent_in_a_thread_over_tcp(tmp_path):
    addresses = dict.fromkeys(("actor_addr", "replay_addr", "logger_addr"), "localhost:{auto}")
    with running_fleet(make_args(tmp_path, agent_process=False, **addresses)) as fleet:
        fleet.join()
    assert (tmp_path / "run.key").stat().st_mode & 0o777 == 0o600
    assert Checkpoints(tmp_path).latest() is not None


def read_keys(logdir: Path) -> set[str]:
    """All metrics of a run so far."""
    path = logdir / "metrics.jsonl"
    return {key for line in read_jsonl(path) for key in line} if path.exists() else set()


def test_scores_of_train_and_eval_are_apart(tmp_path):
    def has_evaluated() -> bool:
        return "eval/reported" in read_keys(tmp_path) and len(read_jsonl(tmp_path / "eval_scores.jsonl")) > 10

    with gated_fleet(make_args(tmp_path), episodes=40, length=5):
        eventually(has_evaluated, "evaluation beside training")
    train = [line["episode/score"] for line in read_jsonl(tmp_path / "scores.jsonl")]
    evaluation = [line["eval_episode/score"] for line in read_jsonl(tmp_path / "eval_scores.jsonl")]
    assert len(train) > 100 and set(train) == {5.0}
    assert len(evaluation) > 10 and set(evaluation) == {5.0}
    assert {"train/updates", "report/reported", "eval/reported", "episode/log/double/max"} <= read_keys(tmp_path)


def test_running_again_resumes(tmp_path):
    with running_fleet(make_args(tmp_path, steps=600)) as fleet:
        fleet.join()
    first = Checkpoints(tmp_path).latest()
    with running_fleet(make_args(tmp_path, steps=1500)) as fleet:
        fleet.join()
    second = Checkpoints(tmp_path).latest()
    assert first and second
    assert second.manifest["updates"] > first.manifest["updates"] > 0
    assert second.step >= 1500 and first.step < 1500
    assert int(second.read("agent")["trained"]) == second.manifest["updates"]
    samples = second.manifest["replay"]["samples"]
    assert samples - second.manifest["updates"] * 4 <= 3 * 4, "samples that were asked for ahead are the only surplus"


def test_a_run_ends_after_its_duration(tmp_path):
    with running_fleet(make_args(tmp_path, steps=50)) as fleet:
        fleet.join()
    before = Checkpoints(tmp_path).latest()
    assert before
    duration = before.manifest["elapsed_s"] + 1.0
    with running_fleet(make_args(tmp_path, steps=0, duration=duration)) as fleet:
        fleet.join()
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint and checkpoint.manifest["elapsed_s"] >= duration


def test_serial_is_the_same_for_a_seed(tmp_path):
    def run(name: str) -> tuple:
        args = make_args(tmp_path / name, steps=800)
        run_serial(make_factories(args), read_args(args))
        checkpoint = Checkpoints(tmp_path / name).latest()
        assert checkpoint
        with make_store(args, 9, "train") as store:
            data = store.sample(200)
        return checkpoint.manifest["updates"], data["step"].tolist(), data["action"].tolist()

    assert run("first") == run("second")
