"""Log directories of the reference that are damaged, old, of others, or evil."""

import os
import pickle
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dreamfleet.agent.dreamer.learning import DETER, STOCH, compact
from dreamfleet.cli import main
from dreamfleet.migration.chunks import read_chunk
from dreamfleet.migration.logdirs import find_checkpoint, find_chunks
from tests.migration.reference import trajectories, write_chunk


def find_chunk(directory: Path, number: int) -> Path:
    (path,) = directory.rglob(f"*-{number:022d}-*-*.npz")
    return path


def test_stored_states_are_written_as_ours_are(theirs):
    """The rows of a store are alike, and those of the run that goes on have states."""
    path = find_chunk(theirs, 2)
    rows = read_chunk(path)
    assert sorted(key for key in rows if "/" in key) == [DETER, STOCH]
    with np.load(path) as file:
        states: Any = SimpleNamespace(deter=jnp.asarray(file[DETER]), stoch=jnp.asarray(file[STOCH].reshape(8, -1)))
    rssm: Any = SimpleNamespace(stoch=3, classes=4)
    for key, value in compact(rssm, states).items():
        assert rows[key].dtype == value.dtype and np.array_equal(rows[key], value)


def test_damaged_chunks_are_left_out_and_named(theirs, tmp_path, capsys):
    replay = theirs / "replay"
    write_chunk(replay, 0, 9, 3, token=np.zeros(3, np.int32))  # an environment that was changed since
    for number, following in ((4, 5), (5, 6), (6, 0), (7, 8), (8, 7)):
        write_chunk(replay, number, following, 6, first=(number - 4) * 6)
    torn = find_chunk(replay, 5)
    torn.write_bytes(torn.read_bytes()[:300])
    (replay / "not-one-of-theirs.npz").write_bytes(b"")
    assert main(["import-reference", str(theirs), str(tmp_path / "ours")]) == 0
    shown = capsys.readouterr().out
    rewards = [rewards.tolist() for rewards in trajectories(tmp_path / "ours" / "replay" / "train")]
    assert sorted(rewards) == [list(range(5)), list(range(6)), list(range(15)), list(range(12, 18))]
    assert "32 steps of 5 chunks" in shown
    assert re.search(rf"{torn.name}: is not an NPZ file", shown)
    assert re.search(rf"{find_chunk(replay, 0).name}: its rows are not like.*extra \['token'\]", shown)
    assert shown.count("it has no beginning") == 2


def test_what_else_is_there_is_named(theirs, tmp_path, capsys):
    (theirs / "replay_eval").mkdir()
    write_chunk(theirs / "replay_eval", 1, 0, 5)
    (theirs / "checkpoint.ckpt").touch()
    assert main(["import-reference", str(theirs), str(tmp_path / "ours")]) == 0
    shown = capsys.readouterr().out
    assert "replay_eval not taken" in shown and "checkpoint.ckpt not taken" in shown


def test_chunks_of_several_replicas_are_found(theirs, tmp_path):
    for number, path in enumerate(find_chunks(theirs)):
        folder = theirs / "replay" / f"{number % 2:05}"
        folder.mkdir(exist_ok=True)
        path.rename(folder / path.name)
    assert len(find_chunks(theirs)) == 3
    assert main(["import-reference", str(theirs), str(tmp_path / "ours")]) == 0
    rewards = [rewards.tolist() for rewards in trajectories(tmp_path / "ours" / "replay" / "train")]
    assert sorted(rewards) == [list(range(5)), list(range(15))]


def test_a_damaged_pointer_to_the_newest_checkpoint_does_not_hide_it(theirs):
    for content in (b"\xff\xfe", b"20990101T000000F000", b""):
        (theirs / "ckpt" / "agent" / "latest").write_bytes(content)
        found = find_checkpoint(theirs)
        assert found and found.name == "20260101T000000F000"


class Lying:
    """An array whose type says that its bytes are numbers and that they are pointers."""

    def __reduce__(self):
        fields = {"a": (np.dtype("O"), 0)}
        dtype = (np.dtype, ("V8", False, True), (3, "|", None, ("a",), fields, 8, 1, 0))
        make, *_ = np.zeros(1).__reduce_ex__(5)
        return make, (b"\x01" * 8, _Built(dtype), (1,), "C")


class _Built:
    def __init__(self, reduced: tuple):
        self._reduced = reduced

    def __reduce__(self):
        return self._reduced


@pytest.mark.parametrize(
    "value", [Lying(), np.array([{}], object), np.array(["x"]), np.zeros(2, "f4,i4"), "text", None]
)
def test_what_is_no_array_of_numbers_is_refused(theirs, tmp_path, value, capsys):
    (path,) = theirs.rglob("agent.pkl")
    path.write_bytes(pickle.dumps({"params": {"enc/mlp0/kernel": value}}))
    assert main(["import-reference", str(theirs), str(tmp_path / "ours")]) == 1
    assert re.search("only arrays and plain containers|no array of numbers", capsys.readouterr().err)


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
