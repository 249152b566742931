"""Fleets on real processes with a store: kills of the replay cost nothing, and the learner maps what it trains on."""

import collections

import numpy as np
import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.cli import main
from tests.fleet import eventually, gated_fleet, make_args, make_store, read_inserts, read_jsonl, running_fleet

pytestmark = pytest.mark.distributed


def test_kills_of_the_replay_neither_lose_nor_double_a_step(tmp_path):
    args = make_args(tmp_path, steps=4000)
    with gated_fleet(args, episodes=80) as fleet:
        for step in (500, 1200, 2000):
            fleet.wait_step(step)
            at_kill, old = fleet.step(), fleet.kill("replay")
            fleet.wait_role("replay", lambda role, old=old: role["state"] == "running" and role["pid"] != old)
            assert fleet.step() >= at_kill
    with make_store(args, 9, "train") as store:
        assert store.committed == read_inserts(tmp_path) == store.stats()["steps"]
        assert store.stats()["trajectories"] == 3, "the trajectories of the environments go on over the kills"
        lives = collections.defaultdict(list)
        for segment in store._rows.pool.live.values():
            there = segment.numbers > 0
            columns = (segment.columns[name][there].tolist() for name in ("life", "episode", "step"))
            for life, episode, step in zip(*columns, strict=True):
                lives[life].append((episode, step))
    for steps in lives.values():
        steps.sort()
        expected = [(episode, step) for episode in range(steps[-1][0] + 1) for step in range(11)]
        assert steps == expected[: len(steps)], "a step is missing or there twice"


@pytest.mark.parametrize("storage", ["disk", "ram"])
@pytest.mark.parametrize("consec", [1, 3])
def test_a_learner_on_the_same_machine_gets_references(tmp_path, storage, consec):
    args = make_args(tmp_path, storage=storage, consec_train=consec)

    def has_referred() -> bool:
        path = tmp_path / "metrics.jsonl"
        return path.exists() and any(line.get("replay/reference_batches", 0) > 20 for line in read_jsonl(path))

    with gated_fleet(args, episodes=30):
        eventually(has_referred, "batches of references")
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint and checkpoint.manifest["updates"] > 50
    log = (tmp_path / "logs" / "agent.log").read_text()
    assert "requesting rows instead" not in log


def test_steps_in_memory_are_lost_with_the_process_and_the_run_goes_on(tmp_path):
    args = make_args(tmp_path, steps=3000, storage="ram")
    with gated_fleet(args, episodes=40) as fleet:
        fleet.wait_step(1000)
        at_kill, old = fleet.step(), fleet.kill("replay")
        fleet.wait_role("replay", lambda role: role["state"] == "running" and role["pid"] != old)
        assert fleet.step() >= at_kill
    assert read_inserts(tmp_path) >= 3000


def test_offline_training_from_imported_episodes(tmp_path):
    with running_fleet(make_args(tmp_path / "online", steps=600, eval_envs=0)) as fleet:
        fleet.join()
    assert main(["replay", "export", str(tmp_path / "online"), str(tmp_path / "episodes")]) == 0
    assert main(["replay", "import", str(tmp_path / "episodes"), str(tmp_path / "offline")]) == 0
    args = make_args(tmp_path / "offline", envs=0, eval_envs=0, steps=0, updates=60, train_ratio=0.0)
    with running_fleet(args) as fleet:
        fleet.join()
    checkpoint = Checkpoints(tmp_path / "offline").latest()
    assert checkpoint and checkpoint.manifest["updates"] == 60
    assert read_inserts(tmp_path / "offline") == 0, "imported steps are not steps of the run"


def test_refreshed_states_are_in_the_store_at_the_end(tmp_path):
    args = make_args(tmp_path)
    with running_fleet(args) as fleet:
        fleet.join()
    with make_store(args, 9, "train") as store:
        data = store.sample(500)
        np.testing.assert_array_equal(data["echo"], 10 * data["step"])
        assert store.stats()["updates_ignored"] == 0
