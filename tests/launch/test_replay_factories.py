"""From a config to the replays of a run."""

import re

import numpy as np
import pytest

from dreamfleet.base import filesystems
from dreamfleet.errors import ConfigError
from dreamfleet.launch.factories import check_replay, make_run_env, make_run_replay, make_run_stream
from dreamfleet.options import check_options, load_options, role_options
from dreamfleet.replay import Store


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


def test_a_network_file_system_is_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystems, "find_kind", lambda path: "nfs4" if tmp_path in path.parents else "ext4")
    config = load_options({"logdir": str(tmp_path), "task": "dummy_image", "replay.capacity": 10_000})
    with pytest.raises(ConfigError, match=r"replay.directory='.*' is on a network file system \(nfs4\); set it to"):
        check_replay(config, find_spaces(config))
    for other in ({"replay.storage": "ram"}, {"replay.directory": "/elsewhere"}):
        elsewhere = load_options({"logdir": str(tmp_path), "task": "dummy_image", "replay.capacity": 10_000, **other})
        assert check_replay(elsewhere, find_spaces(elsewhere)).startswith("replay buffer: 10,000 steps")


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


def test_without_environments_there_must_be_steps_and_no_end_that_counts_more_of_them(make, tmp_path):
    with make() as store:
        fill(store)
    offline = {"logdir": str(tmp_path), "run.envs": 0}
    check_options(load_options(offline))
    with pytest.raises(
        ConfigError, match=r"run\.steps=10 counts .* run\.envs=0; set it to 0, and run\.updates or run\.dur"
    ):
        check_options(load_options({**offline, "run.steps": 10}))
    with pytest.raises(ConfigError, match=r"run\.leg=10 counts steps of environments"):
        check_options(load_options({**offline, "run.leg": 10, "run.mode": "serial"}))
    with pytest.raises(ConfigError, match=r"replay\.storage='ram' holds no steps at the start"):
        check_options(load_options({**offline, "replay.storage": "ram"}))


def test_the_train_ratio_is_of_no_meaning_without_environments(tmp_path):
    assert role_options(load_options({"logdir": str(tmp_path)})).train_ratio == 32
    assert role_options(load_options({"logdir": str(tmp_path), "run.envs": 0})).train_ratio == 0
    assert role_options(load_options({"run.envs": 0, "run.remote_envs": True})).train_ratio == 32


def record(directory, count=200, **columns):
    """A store of steps as those of `dummy_vector`, but for what is given."""
    config = load_options({"task": "dummy_vector"})
    spaces = {key: space for key, space in find_spaces(config).items() if key != "reset" and "/" not in key}
    row = {key: np.zeros(space.shape, space.dtype) for key, space in spaces.items()} | columns
    with Store(1, 1000, directory=directory) as store:
        for n in range(count):
            store.add({**row, "is_first": np.bool_(n == 0)}, 0)
    return config


@pytest.mark.parametrize(
    ("columns", "count", "part"),
    [
        ({}, 200, ""),
        ({"state": np.zeros(3)}, 200, ""),  # of an agent
        ({"reward": np.float64(0)}, 200, "holds steps of another kind than task dummy_vector: 'reward' is float64()"),
        ({}, 70, "holds 6 sequences of 65 steps, but a batch has 16; use more episodes"),
    ],
)
@pytest.mark.parametrize("kind", ["mix", "offline", "held_out"])
def test_recorded_steps_must_be_of_the_task(tmp_path, kind, columns, count, part):
    own, other = tmp_path / "run", tmp_path / "other"
    places = {
        "mix": other / "replay" / "train",
        "offline": own / "replay" / "train",
        "held_out": own / "replay/held_out",
    }
    config = record(places[kind], count, **columns)
    options = {"mix": {"replay.mix": str(other)}, "offline": {"run.envs": 0}, "held_out": {}}[kind]
    config = load_options({"logdir": str(own), "task": "dummy_vector", **options})
    check_options(config)
    if not part:
        check_replay(config, find_spaces(config))
        return
    with pytest.raises(ConfigError, match=re.escape(part)) as caught:
        check_replay(config, find_spaces(config))
    assert str(caught.value).startswith(f"replay.{'mix' if kind == 'mix' else 'directory'}=")


def test_held_out_episodes_take_the_place_of_evaluation_data(make, tmp_path):
    with Store(1, 1000, directory=tmp_path / "replay" / "held_out") as store:
        fill(store)
    replay = make("eval")
    replay.add({"another": np.int64(1), "is_first": np.bool_(True), "is_last": np.bool_(False)}, 0)
    assert (len(replay), replay.steps) == (192, 200)
    assert (np.diff(replay.sample(16)["n"]) == 1).all()
    replay.close()
    assert not (tmp_path / "replay" / "eval").exists()


def test_a_share_of_batches_is_of_another_run(make, tmp_path):
    with Store(1, 1000, directory=tmp_path / "other" / "replay" / "train") as store:
        fill(store, 1000)
    replay = make(**{"replay.mix": str(tmp_path / "other"), "replay.mix_share": 0.25})
    for n in range(5000, 5200):
        replay.add({"n": np.int64(n), "is_first": np.bool_(False), "is_last": np.bool_(False)}, 0)
    batch = replay.sample(8)
    assert (batch["n"][:, 0] < 5000).tolist() == 6 * [False] + 2 * [True]
    assert batch["is_first"][6:, :2].all() and not batch["is_first"][:6, 1].any(), "one step of context"
    replay.close()
