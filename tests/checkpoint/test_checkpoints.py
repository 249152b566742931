"""Checkpoint directories: committed as a whole, passed over when damaged, removed when old."""

import json
import logging
import os
import re
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.checkpoint.checkpoint import seal
from dreamfleet.errors import CheckpointError


def save(checkpoints, step, score=None, score_of="train"):
    draft = checkpoints.draft(step)
    draft.write("agent", {"step": step, "params": np.full(1000, step)})
    draft.write("replay", {"inserts": step})
    return draft.commit({"updates": step // 10, "score_of": score_of}, best_score=score)


def names(logdir):
    return sorted(path.name for path in (logdir / "ckpt").iterdir())


def test_commit_and_read_back(tmp_path):
    committed = save(Checkpoints(tmp_path), 120)
    found = Checkpoints(tmp_path).latest()
    assert found and found.name == committed.name == "step-000000000120-0001"
    assert found.path == tmp_path / "ckpt" / found.name
    assert found.step == 120 and found.manifest["updates"] == 12
    assert found.manifest == committed.manifest
    assert found.parts == ["agent", "replay"]
    assert (found.read("agent")["params"] == 120).all()
    assert found.read("replay") == {"inserts": 120}
    assert sorted(path.name for path in found.path.iterdir()) == ["agent.bin", "manifest.json", "replay.bin"]
    with pytest.raises(CheckpointError, match="no part 'logger'; it has agent, replay"):
        found.read("logger")


def test_nothing_is_found_before_the_commit(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() is None
    draft = checkpoints.draft(5)
    draft.write("agent", 1)
    assert checkpoints.latest() is None
    draft.abort()
    draft.abort()
    assert names(tmp_path) == []
    with pytest.raises(CheckpointError, match="removed meanwhile"):
        draft.write("agent", 1)


def test_numpy_values_in_the_manifest(tmp_path):
    draft = Checkpoints(tmp_path).draft(1)
    checkpoint = draft.commit({"count": np.int64(3), "rng": np.arange(2, dtype=np.uint64), "big": 2**127})
    assert checkpoint.manifest["count"] == 3
    assert checkpoint.manifest["rng"] == [0, 1]
    assert Checkpoints.load(checkpoint.path).manifest["big"] == 2**127


def cut_short(path):
    part = path / "agent.bin"
    part.write_bytes(part.read_bytes()[:-1])


def flip_byte(path):
    part = path / "agent.bin"
    content = bytearray(part.read_bytes())
    content[-5] ^= 1
    part.write_bytes(content)


def change_number(path):
    text = (path / "manifest.json").read_text()
    assert '"updates": 20' in text
    (path / "manifest.json").write_text(text.replace('"updates": 20', '"updates": 21'))


DAMAGE = {
    "truncated part": (cut_short, "bytes instead of"),
    "flipped byte": (flip_byte, "checksum"),
    "missing part": (lambda path: (path / "replay.bin").unlink(), r"replay\.bin.*No such file"),
    "missing manifest": (lambda path: (path / "manifest.json").unlink(), r"manifest\.json.*No such file"),
    "torn manifest": (lambda path: os.truncate(path / "manifest.json", 40), r"manifest\.json is damaged"),
    "binary manifest": (lambda path: (path / "manifest.json").write_bytes(b"\xff\x00"), "damaged"),
    "other document": (lambda path: (path / "manifest.json").write_text("[]"), "damaged"),
    "changed number": (change_number, "checksum"),
    "other format": (lambda path: rewrite(path, format=99), "update dreamfleet"),
    "step no number": (lambda path: rewrite(path, step="1"), "whole number"),
    "path in a part name": (lambda path: rewrite(path, parts={"../x": {"size": 1, "crc32": 1}}), "cannot name"),
    "a file": (lambda path: (shutil.rmtree(path), path.write_text("x")), "Not a directory"),
}


def rewrite(path, **changes):
    document = json.loads((path / "manifest.json").read_bytes())
    del document["crc32"]
    (path / "manifest.json").write_bytes(seal(document | changes))


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_newest_falls_back_with_a_warning(tmp_path, caplog, kind):
    harm, reason = DAMAGE[kind]
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 100)
    newest = save(checkpoints, 200)
    harm(newest.path)
    with caplog.at_level(logging.WARNING, "dreamfleet.checkpoint"):
        found = checkpoints.latest()
    assert found and found.step == 100
    assert found.read("agent")["step"] == 100
    (record,) = caplog.records
    assert newest.name in record.getMessage()
    assert re.search(reason, record.getMessage())
    if newest.path.is_dir() and (newest.path / "manifest.json").exists():
        with pytest.raises(CheckpointError, match=reason):
            Checkpoints.load(newest.path)


def test_read_notices_damage_after_opening(tmp_path):
    checkpoint = save(Checkpoints(tmp_path), 1)
    flip_byte(checkpoint.path)
    with pytest.raises(CheckpointError, match=r"agent\.bin is damaged"):
        checkpoint.read("agent")


def test_load_takes_any_of_the_paths(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    first, second = save(checkpoints, 1), save(checkpoints, 2)
    assert Checkpoints.load(first.path).step == 1
    assert Checkpoints.load(str(tmp_path / "ckpt")).name == second.name
    assert Checkpoints.load(tmp_path).name == second.name
    with pytest.raises(CheckpointError, match="holds no usable checkpoint"):
        Checkpoints.load(tmp_path / "elsewhere")


def test_keeps_the_newest_and_the_best(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step, score in [(1, 5.0), (2, 9.0), (3, None), (4, 9.0), (5, float("nan")), (6, 1.0), (7, None)]:
        newest = save(checkpoints, step, score)
        assert newest.path.is_dir()
    assert [Checkpoints.load(tmp_path / "ckpt" / name).step for name in names(tmp_path)] == [4, 6, 7]


def test_the_best_is_that_of_evaluation_where_there_is_one(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    assert checkpoints.best() is None
    for step, score, of, best in [
        (1, None, "train", None),
        (2, 80.0, "train", 2),
        (3, 20.0, "eval", 3),
        (4, 90.0, "train", 3),
        (5, 30.0, "eval", 5),
        (6, 10.0, "eval", 5),
    ]:
        save(checkpoints, step, score, of)
        found = checkpoints.best()
        assert (found.step if found else None) == best
    assert [int(name.split("-")[1]) for name in names(tmp_path)] == [5, 6], "it is kept beside the newest"


def test_a_damaged_best_is_passed_over(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1, 5.0)
    path = save(checkpoints, 2, 9.0).path / "agent.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    best = checkpoints.best()
    assert best and best.step == 1 and "skipped for the one of the next best score" in caplog.text


def test_keeps_the_newest_without_scores(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in range(1, 7):
        save(checkpoints, step)
    assert [int(name.split("-")[1]) for name in names(tmp_path)] == [4, 5, 6]


def test_damaged_checkpoints_do_not_crowd_out_whole_ones(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 1)
    save(checkpoints, 2)
    cut_short(save(checkpoints, 3).path)
    save(checkpoints, 4)
    assert [int(name.split("-")[1]) for name in names(tmp_path)] == [2, 3, 4]
    save(checkpoints, 5)
    assert [int(name.split("-")[1]) for name in names(tmp_path)] == [4, 5]


def test_names_sort_across_restarts(tmp_path):
    written = [save(Checkpoints(tmp_path, keep=9), step).name for step in (7, 7, 7, 10, 1000)]
    assert written == sorted(written) == names(tmp_path)
    assert len(set(written)) == 5
    latest = Checkpoints(tmp_path).latest()
    assert latest and latest.name == written[-1]


def test_the_newest_is_the_last_written_even_if_the_step_went_back(tmp_path):
    save(Checkpoints(tmp_path), 500)
    save(Checkpoints(tmp_path), 300)
    latest = Checkpoints(tmp_path).latest()
    assert latest and latest.step == 300


def test_the_first_draft_removes_leftovers(tmp_path):
    stale = Checkpoints(tmp_path).draft(3)
    stale.write("agent", 1)
    (tmp_path / "ckpt" / ".trash-step-000000000001-0001").mkdir()
    checkpoints = Checkpoints(tmp_path)
    first = checkpoints.draft(4)
    assert names(tmp_path) == [first.path.name]
    second = checkpoints.draft(5)
    assert names(tmp_path) == sorted([first.path.name, second.path.name])


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "/etc", "step-000000000001-0001/..", "step-1-1", ".draft-x", None, 3]
)
def test_draft_names_are_checked(tmp_path, name):
    with pytest.raises(CheckpointError, match="not the name of a checkpoint"):
        Checkpoints(tmp_path).open_draft(name)


def test_open_draft_needs_a_draft(tmp_path):
    checkpoint = save(Checkpoints(tmp_path), 1)
    with pytest.raises(CheckpointError, match="no draft"):
        Checkpoints(tmp_path).open_draft(checkpoint.name)


@pytest.mark.parametrize("part", ["", "../agent", "a/b", "manifest", ".hidden", "a.b", "x" * 65])
def test_part_names_are_checked(tmp_path, part):
    with pytest.raises(CheckpointError, match="cannot name a checkpoint part"):
        Checkpoints(tmp_path).draft(1).write(part, 1)


@pytest.mark.distributed
def test_two_processes_add_parts(tmp_path):
    draft = Checkpoints(tmp_path).draft(8)
    draft.write("agent", {"params": np.ones(3)})
    script = (
        "import sys, numpy as np\n"
        "from dreamfleet.checkpoint import Checkpoints\n"
        "Checkpoints(sys.argv[1]).open_draft(sys.argv[2]).write('replay', {'rows': np.arange(9)})\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path, draft.name], check=True, timeout=60)
    checkpoint = draft.commit({})
    assert checkpoint.parts == ["agent", "replay"]
    assert (checkpoint.read("replay")["rows"] == np.arange(9)).all()


def test_a_part_may_be_written_again(tmp_path):
    draft = Checkpoints(tmp_path).draft(1)
    draft.write("replay", np.zeros(100))
    draft.write("replay", 2)
    assert draft.commit({}).read("replay") == 2


def test_a_part_whose_writer_died_stops_the_commit(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    draft = checkpoints.draft(2)
    (draft.path / "replay.bin").write_bytes(b"half")
    with pytest.raises(CheckpointError, match=r"replay\.bin was not finished"):
        draft.commit({})
    assert len(names(tmp_path)) == 1


def test_full_disk(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    draft = checkpoints.draft(2)
    (draft.path / "agent.bin").symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"agent\.bin: No space left on device; free some space"):
        draft.write("agent", np.zeros(1 << 20))
    assert names(tmp_path) == ["step-000000000001-0001"]
    assert save(checkpoints, 3).read("agent")["step"] == 3


def test_logdir_that_cannot_be_written(tmp_path):
    (tmp_path / "ckpt").write_text("in the way")
    with pytest.raises(CheckpointError, match="ckpt: File exists; move away"):
        Checkpoints(tmp_path).draft(1)


def test_a_failed_write_removes_the_draft(tmp_path):
    draft = Checkpoints(tmp_path).draft(1)
    with pytest.raises(CheckpointError, match="cannot save /bad"):
        draft.write("agent", {"bad": object()})
    assert names(tmp_path) == []


def test_others_cannot_write(tmp_path):
    before = os.umask(0)
    try:
        checkpoint = save(Checkpoints(tmp_path), 1)
    finally:
        os.umask(before)
    for path in (checkpoint.path, *checkpoint.path.iterdir()):
        assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH), path


def test_a_role_elsewhere_removes_what_a_kill_left_of_its_earlier_parts(tmp_path):
    for name in (".draft-step-000000000100-0001", ".trash-step-000000000100-0002", ".draft-step-000000000100-0004"):
        (tmp_path / "ckpt" / name).mkdir(parents=True)
    Checkpoints(tmp_path).add_part("step-000000000200-0003", "logger", {"episodes": 1}, is_elsewhere=True)
    left = sorted(path.name for path in (tmp_path / "ckpt").iterdir())
    assert left == [".draft-step-000000000100-0004", "step-000000000200-0003"], "nothing of a later one is touched"


def test_a_link_leads_to_the_part_of_the_newest(tmp_path):
    link = tmp_path / "ckpt" / "agent"
    for step in (1, 2):
        draft = Checkpoints(tmp_path, keep=1).draft(step)
        draft.write("agent", {"step": step})
        checkpoint = draft.commit({}, link="agent")
        assert link.is_symlink() and link.resolve() == checkpoint.path / "agent.bin"
        assert Checkpoints.load(link).read("agent") == {"step": step}
    assert names(tmp_path) == ["agent", checkpoint.name]
    assert Checkpoints(tmp_path).latest().name == Checkpoints.load(tmp_path).name == checkpoint.name


def test_a_link_takes_the_place_of_nothing_else(tmp_path):
    (tmp_path / "ckpt" / "agent").mkdir(parents=True)
    draft = Checkpoints(tmp_path).draft(1)
    draft.write("agent", {})
    checkpoint = draft.commit({}, link="agent")
    assert (tmp_path / "ckpt" / "agent").is_dir() and names(tmp_path) == ["agent", checkpoint.name]
