"""A log directory as the reference leaves it, taken over and trained on."""

import os
import pickle
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.cli import main
from dreamfleet.errors import ConfigError
from dreamfleet.launch.combined import combined
from dreamfleet.launch.history import check_start
from dreamfleet.migration.chunks import find_chains
from dreamfleet.migration.settings import OURS, translate_options
from dreamfleet.migration.weights import read_weights, translate_weights
from dreamfleet.options import load_options
from dreamfleet.options.fields import find_options
from dreamfleet.replay.archive import Archive
from tests.fleet import make_args, make_factories

DATA = Path(__file__).parents[1] / "data" / "reference_a.npz"
CONFIG = {
    "task": "dummy_vector",
    "seed": 3,
    "batch_size": 4,
    "script": "parallel",
    "env": {"atari": {"size": [64, 64], "actions": "all"}},
    "replay": {
        "size": 5e4,
        "online": False,
        "prio": {"initial": float("inf")},
        "fracs": {"uniform": 0.5, "recency": 0.5},
    },
    "run": {"steps": 1e4, "actor_batch": -1, "train_ratio": 64.0},
    "jax": {"platform": "cpu", "compute_dtype": "bfloat16"},
    "agent": {
        "opt": {"lr": 1e-4},
        "dyn": {"rssm": {"deter": 64}},
        "retnorm": {"impl": "perc"},
        "valnorm": {"impl": "odd"},
    },
}


def write_chunk(folder: Path, number: int, following: int, rows: int, first: int = 0, **extra) -> None:
    """A chunk that begins at the step `first` of an endless count, with an episode every five steps."""
    steps = np.arange(first, first + rows)
    data = {
        "vector": np.stack([steps, steps], 1).astype(np.float32),
        "action": np.zeros(rows, np.int32),
        "reward": steps.astype(np.float32),
        "is_first": steps % 5 == 0,
        "is_last": steps % 5 == 4,
        "is_terminal": steps % 5 == 4,
        "stepid": np.zeros((rows, 20), np.uint8),
        "dyn/deter": np.zeros((rows, 8), np.float32),
        **extra,
    }
    np.savez_compressed(folder / f"20260101T00000{number}F000-{number:022d}-{following:022d}-{rows}.npz", **data)


@pytest.fixture
def theirs(tmp_path):
    """What the reference's parallel script leaves in its log directory."""
    directory = tmp_path / "theirs"
    (directory / "replay").mkdir(parents=True)
    with (directory / "config.yaml").open("w") as stream:
        YAML().dump(CONFIG, stream)
    write_chunk(directory / "replay", 1, 2, 7)
    write_chunk(directory / "replay", 2, 0, 8, first=7)
    write_chunk(directory / "replay", 3, 0, 5)
    saved = directory / "ckpt" / "agent" / "20260101T000000F000"
    saved.mkdir(parents=True)
    params = {key.removeprefix("param/"): value for key, value in np.load(DATA).items() if key.startswith("param/")}
    (saved / "agent.pkl").write_bytes(pickle.dumps({"params": params, "counters": {"updates": 77}}))
    (saved / "done").touch()
    (saved.parent / "latest").write_text(saved.name)
    return directory


def test_everything_is_taken_that_can_be(theirs, tmp_path, capsys):
    ours = tmp_path / "ours"
    before = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    assert main(["import-reference", str(theirs), str(ours)]) == 0
    shown = capsys.readouterr().out
    assert {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()} == before
    rewards = [archive_rewards.tolist() for archive_rewards in _trajectories(ours / "replay" / "train")]
    assert sorted(rewards) == [list(range(5)), list(range(15))]
    weights = Checkpoints.load(ours / "imported").read("agent")
    recorded = np.load(DATA)
    assert np.array_equal(weights["model/rssm/gates/kernel"], recorded["param/dyn/dyngru/kernel"])
    assert np.array_equal(weights["learning/slow_critic/out/bias"], recorded["param/slowval/head/logits/bias"])
    assert "127 of 130 arrays after 77 updates" in shown and "slowval_count/value" in shown
    assert re.search(r"script = 'parallel': no such option here", shown)
    words = shlex.split(shown.partition("go on with:")[2].replace("\\\n", " "))[2:]
    options = load_options(words)
    assert (options.task, options.seed, options.batch_size, options.run.steps) == ("dummy_vector", 3, 4, 10_000)
    assert options.replay.capacity == 50_000 and options.replay.recency == 0.5
    assert options.dreamer.deter == 64 and options.dreamer.learning_rate == 1e-4
    assert options.jax.precision == "bfloat16" and options.run.from_checkpoint == str(ours / "imported")


def _trajectories(directory: Path) -> list[np.ndarray]:
    archive = Archive(directory)
    by_trajectory: dict[int, list] = {}
    for trajectory, segments, rows in archive.episodes():
        by_trajectory.setdefault(trajectory, []).append(archive.column("reward", segments, rows))
    return [np.concatenate(parts) for parts in by_trajectory.values()]


def test_every_option_that_we_name_is_one_of_ours():
    assert {ours for ours, _ in OURS.values()} <= find_options(type(load_options())).keys()


def test_every_option_that_is_taken_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "migration.md").read_text()
    section = page.partition("## Options")[2].partition("\n## ")[0]
    pairs = dict(re.findall(r"^\| `([\w.]+)` \| `([\w.]+)`", section, re.MULTILINE))
    same = re.findall(r"`([\w.]+)`", section.partition("|")[0])
    assert pairs | dict(zip(same, same, strict=True)) == {theirs: ours for theirs, (ours, _) in OURS.items()}


def test_what_cannot_be_taken_is_told_with_its_reason():
    taken, left = translate_options(CONFIG)
    assert left.keys() == {"script", "replay.prio.initial", "agent.valnorm.impl"}
    assert "is not a finite number" in left["replay.prio.initial"]
    assert "env.atari.actions" not in taken, "all is our default, under another name"
    assert taken["env.atari.size"] == 64


def test_chains_are_followed_and_a_lost_beginning_is_none(tmp_path):
    for number, following in ((1, 2), (2, 3), (3, 0), (5, 6), (6, 9), (7, 8), (8, 7)):
        write_chunk(tmp_path, number, following, 2)
    chains = [[int(path.stem.split("-")[1]) for path in chain] for chain in find_chains(sorted(tmp_path.glob("*.npz")))]
    assert chains == [[1, 2, 3], [5, 6]], "two that name each other have no beginning"


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil",)


@pytest.mark.parametrize("payload", [Evil(), {"params": {"enc/mlp0/kernel": Evil()}}, np.array([Evil()], object)])
def test_code_in_a_pickle_is_never_run(theirs, tmp_path, payload, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (path,) = theirs.rglob("agent.pkl")
    path.write_bytes(pickle.dumps(payload))
    assert main(["import-reference", str(theirs), str(tmp_path / "ours")]) == 1
    assert "only arrays and plain containers are read" in capsys.readouterr().err
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("content", [b"", b"nonsense", pickle.dumps([1, 2]), pickle.dumps({"params": 3})])
def test_a_broken_checkpoint_is_named(theirs, tmp_path, content, capsys):
    (path,) = theirs.rglob("agent.pkl")
    path.write_bytes(content)
    assert main(["import-reference", str(theirs), str(tmp_path / "ours")]) == 1
    assert str(path) in capsys.readouterr().err


def test_numbers_of_other_kinds_are_read(tmp_path):
    state = {"params": {"a": np.float32(3), "b": np.arange(4)[::2]}, "counters": {"updates": np.int64(5)}}
    for protocol in (4, 5):
        (tmp_path / "agent.pkl").write_bytes(pickle.dumps(state, protocol))
        params, updates = read_weights(tmp_path)
        assert updates == 5 and params["a"] == 3 and params["b"].tolist() == [0, 2]
    assert translate_weights(params) == ({}, ["a", "b"])


def test_wrong_directories_are_refused(theirs, tmp_path, capsys):
    assert main(["import-reference", str(tmp_path / "nowhere"), str(tmp_path / "ours")]) == 2
    assert "holds neither a checkpoint" in capsys.readouterr().err
    assert main(["import-reference", str(theirs), str(theirs)]) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["ckpt", "replay"])
def test_a_run_in_their_directory_is_refused(theirs, tmp_path, part, capsys):
    directory = tmp_path / "part"
    directory.mkdir()
    (theirs / part).rename(directory / part)
    assert main(["train", "--task", "dummy_vector", "--logdir", str(directory)]) == 2
    assert f"dreamfleet import-reference {directory} NEW_LOGDIR" in capsys.readouterr().err
    assert not (directory / "config.yaml").exists(), "and nothing was written there"


def test_a_run_of_ours_with_their_replay_is_not_taken_for_theirs(theirs, tmp_path):
    directory = tmp_path / "ours"
    directory.mkdir()
    (theirs / "replay").rename(directory / "replay")
    options = load_options({"task": "dummy_vector", "logdir": str(directory)})
    with pytest.raises(ConfigError, match="import-reference"):
        check_start(options)
    draft = Checkpoints(directory).draft(5)
    draft.write("agent", {})
    draft.commit({}, link="agent")
    check_start(options)


def test_a_script_in_their_directory_is_refused(theirs):
    args = make_args(theirs)
    with pytest.raises(ConfigError, match="dreamfleet import-reference"):
        combined(*make_factories(args), args)
