"""A log directory as the reference leaves it, taken over and trained on."""

import pickle
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

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
from tests.fleet import make_args, make_factories
from tests.migration.reference import CONFIG, DATA, trajectories, write_chunk


def test_everything_is_taken_that_can_be(theirs, tmp_path, capsys):
    ours = tmp_path / "ours"
    before = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    assert main(["import-reference", str(theirs), str(ours)]) == 0
    shown = capsys.readouterr().out
    assert {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()} == before
    rewards = [archive_rewards.tolist() for archive_rewards in trajectories(ours / "replay" / "train")]
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
    assert left.keys() == {"script", "agent.valnorm.impl"}
    assert "replay.priority_initial" not in taken, "infinite is our default too"
    assert taken["replay.online"] is False
    assert "env.atari.actions" not in taken, "all is our default, under another name"
    assert taken["env.atari.size"] == 64


def test_options_of_the_old_run_are_not_said_to_be_unknown():
    _, left = translate_options({"logdir": "~/theirs", "run": {"remote_envs": True, "eval_eps": 1}})
    assert [key for key, reason in left.items() if "no such option" in reason] == ["run.eval_eps"]
    assert left.keys() == {"logdir", "run.remote_envs", "run.eval_eps"}


def test_chains_are_followed_and_a_lost_beginning_is_none(tmp_path):
    for number, following in ((1, 2), (2, 3), (3, 0), (5, 6), (6, 9), (7, 8), (8, 7)):
        write_chunk(tmp_path, number, following, 2)
    chains = [[int(path.stem.split("-")[1]) for path in chain] for chain in find_chains(sorted(tmp_path.glob("*.npz")))]
    assert chains == [[1, 2, 3], [5, 6]], "two that name each other have no beginning"


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


@pytest.mark.parametrize("part", ["ckpt", "replay", "checkpoint.ckpt"])
def test_a_run_in_their_directory_is_refused(theirs, tmp_path, part, capsys):
    (theirs / "checkpoint.ckpt").touch()  # of an older version
    directory = tmp_path / "part"
    directory.mkdir()
    (theirs / part).rename(directory / part)
    assert main(["train", "--task", "dummy_vector", "--logdir", str(directory)]) == 2
    assert f"dreamfleet import-reference {directory} NEW_LOGDIR" in capsys.readouterr().err
    assert not (directory / "config.yaml").exists(), "and nothing was written there"


@pytest.mark.parametrize("command", [["eval"], ["record"], ["export", "--out", "policy"]])
def test_commands_on_their_directory_say_what_it_is(theirs, command, capsys):
    assert main([command[0], str(theirs), *command[1:]]) == 2
    shown = capsys.readouterr().err
    assert f"dreamfleet import-reference {theirs} NEW_LOGDIR" in shown and "does not know the option" not in shown


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
