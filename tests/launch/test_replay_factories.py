"""From a config to the replays of a run."""

import re

import numpy as np
import pytest

from dreamfleet.errors import ConfigError
from dreamfleet.launch.factories import check_replay, make_run_env, make_run_replay, make_run_stream
from dreamfleet.options import check_options, load_options


@pytest.fixture
def make(tmp_path):
    def make(mode="train", **options):
        sizes = {"batch_length": 8, "report_length": 4, "batch_size": 4}
        config = load_options({"logdir": str(tmp_path), **sizes, **options})
        return make_run_replay(config, mode)

    return make


def fill(store, rows=200):
    for n in range(rows):
        store.add({"n": np.int64(n), "is_first": np.bool_(n == 0), "is_last": np.bool_(False)}, 0)


def test_replays_are_below_the_log_directory_by_mode(make, tmp_path):
    for mode in ("train", "eval"):
        with make(mode) as store:
            fill(store)
            assert store.length == 9
        assert list((tmp_path / "replay" / mode).glob("*.segment"))


def test_another_directory(make, tmp_path):
    with make(**{"replay.directory": str(tmp_path / "elsewhere")}) as store:
        fill(store)
    assert list((tmp_path / "elsewhere" / "train").glob("*.segment"))


def test_memory_leaves_no_files(make, tmp_path):
    with make(**{"replay.storage": "ram"}) as store:
        fill(store)
    assert list(tmp_path.iterdir()) == []


def test_capacities(make):
    with make(**{"run.steps": 5000}) as store:
        fill(store)
        assert store.capacity == 5000
    with make(**{"run.steps": 100, "run.envs": 8, "replay.storage": "ram"}) as store:
        row = {"n": np.arange(8), "is_first": np.ones(8, bool), "is_last": np.zeros(8, bool)}
        for _ in range(200):
            store.add_many(row, range(8))
        assert len(store) >= 8  # one sequence an environment, though the run will be shorter
    with make("eval") as store:
        assert store.capacity == 10_000
    with make("eval", **{"replay.capacity": 50_000}) as store:
        assert store.capacity == 5000


def test_options_reach_the_store(make):
    options = {"replay.uniform": 0, "replay.priority": 1, "replay.online": True, "run.mode": "serial"}
    with make(**options) as store:
        fill(store)
        assert store._selector.priorities and store.truncates
        assert store.sample(2)["n"][:, 0].tolist() == [0, 9]
    with make("eval", **options) as store:
        fill(store)
        assert store._selector.priorities is None
        assert store._rows.unseen.maxlen == 0


def test_stream_and_store_fit(make, tmp_path):
    config = load_options({"logdir": str(tmp_path), "batch_length": 8, "report_length": 4, "batch_size": 4})
    with make() as store:
        fill(store)
        assert next(make_run_stream(config, store, "train"))["n"].shape == (4, 9)
        assert next(make_run_stream(config, store, "report"))["n"].shape == (4, 5)


def find_spaces(config) -> dict:
    env = make_run_env(config, 0)
    return {**env.obs_space, **env.act_space}


def test_what_the_replay_will_take_is_said(tmp_path):
    config = load_options({"logdir": str(tmp_path), "task": "dummy_image", "replay.capacity": 100_000})
    text = check_replay(config, find_spaces(config))
    assert text.startswith("replay buffer: 100,000 steps, at least 1.4 GB (12,299 bytes per step) in ")
    assert str(tmp_path) in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("storage", ["disk", "ram"])
def test_what_cannot_fit_is_refused_before_anything_starts(tmp_path, storage):
    options = {"task": "dummy_image", "replay.capacity": 10**12, "replay.storage": storage}
    with pytest.raises(ConfigError, match=r"replay.capacity=1000000000000 needs .* TB \(12,299 bytes per step\), but"):
        config = load_options({"logdir": str(tmp_path), **options})
        check_replay(config, find_spaces(config))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"replay.capacity": 5000, "run.envs": 64}, "leaves no room for a sequence of each of 64 environments"),
        ({"replay.uniform": 0}, "replay.uniform=0.0 leaves no way to sample sequences"),
        ({"replay.priority_max": 1.5}, "replay.priority_max=1.5 must be in [0, 1]"),
        ({"run.envs": 0}, "leaves nothing to train on"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path, options, part):
    with pytest.raises(ConfigError, match=re.escape(part)):
        check_options(load_options({"logdir": str(tmp_path), **options}))


def test_without_environments_there_must_be_steps_and_nothing_to_wait_for(make, tmp_path):
    with make() as store:
        fill(store)
    offline = {"logdir": str(tmp_path), "run.envs": 0}
    with pytest.raises(ConfigError, match=r"run\.train_ratio=32\.0 cannot be kept without environments"):
        check_options(load_options(offline))
    with pytest.raises(ConfigError, match=r"run\.steps=10 are never reached"):
        check_options(load_options({**offline, "run.train_ratio": 0, "run.steps": 10}))
    check_options(load_options({**offline, "run.train_ratio": 0}))
