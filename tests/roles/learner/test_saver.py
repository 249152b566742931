"""Checkpoints of a fleet: what they are named after, who may be away, and what is told when none can be written."""

import logging
import threading

import numpy as np
import pytest

from dreamfleet import lifecycle
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import DeadlineExceeded, NonFiniteLoss, NotSaved
from dreamfleet.launch.serial import DirectClient
from dreamfleet.roles.learner.saver import CheckpointSaver
from dreamfleet.roles.protocol import LoggerCounts, ReplayCounts
from tests.roles.replays import send

KNOWN = ReplayCounts(inserts=40)
MANIFEST = {"updates": 7, "elapsed_s": 1.0}


def make_state():
    return {"weights": np.ones(3)}


class Silent:
    """A peer that begins to write its part and never answers."""

    peer, is_plain = "replay", False

    def __init__(self, logdir):
        self._logdir = logdir

    def call(self, method, data=None, **_):
        draft = Checkpoints(self._logdir).open_draft(data["name"])
        (draft.path / "replay.bin").write_bytes(b"half")
        return self

    def add_done_callback(self, fn):
        pass

    def result(self, timeout_s):
        raise DeadlineExceeded("replay.save has not answered")


class Logger:
    """Keeps the name of the draft that it was asked to add to."""

    def __init__(self, logdir):
        self.names = []
        self._logdir = logdir

    def save(self, data, meta):
        self.names.append(data["name"])
        Checkpoints(self._logdir).add_part(data["name"], "logger", {"episodes": 3})
        return LoggerCounts(3, 7.5, is_eval=True).to_data()


@pytest.fixture(autouse=True)
def stopped():
    """A stop was requested, as before every last checkpoint."""
    lifecycle.reset()
    lifecycle.request_stop()
    yield
    lifecycle.reset()


def make_saver(logdir, retries_s=(0.0, 0.0), **peers):
    return CheckpointSaver(Checkpoints(logdir), peers, 0.0, retries_s)


def test_the_counts_are_those_of_the_replay_at_one_moment(tmp_path, open_role):
    role, logger = open_role(), Logger(tmp_path)
    send(role, range(57), 1)
    clients = {
        "replay": DirectClient("replay", role.methods()),
        "logger": DirectClient("logger", {"save": logger.save}),
    }
    make_saver(tmp_path, **clients).finish(make_state, MANIFEST, KNOWN)
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint and checkpoint.parts == ["agent", "logger", "replay"] and checkpoint.missing == []
    assert checkpoint.score == 7.5 and checkpoint.is_scored_by_eval
    state = checkpoint.read("replay")
    assert checkpoint.step == checkpoint.manifest["counts"]["inserts"] == state["inserts"] == 57
    assert state["train"]["committed"] == 57
    assert logger.names == [checkpoint.name], "a logger elsewhere keeps its part under the final name"


def test_rows_that_come_during_a_save_are_counted_or_not_there(tmp_path, open_role):
    """Neither the counts nor the store may be ahead of the other, whenever the save comes."""
    role = open_role(steps=0)  # endless, as the thread inserts for as long as the saves take
    stop, saver = threading.Event(), make_saver(tmp_path, replay=DirectClient("replay", role.methods()))

    def insert():
        for sequence in range(1, 1000):
            send(role, [sequence, sequence, sequence], sequence, env_ids=[0, 1, 2])
            if stop.is_set():
                return

    thread = threading.Thread(target=insert)
    thread.start()
    for _ in range(20):
        saver.finish(make_state, MANIFEST, KNOWN)
        checkpoint = Checkpoints(tmp_path).latest()
        assert checkpoint
        state = checkpoint.read("replay")
        assert checkpoint.step == state["inserts"] == state["train"]["committed"]
    stop.set()
    thread.join()


def test_what_the_agent_learned_is_saved_without_a_part_that_is_away(tmp_path, caplog):
    make_saver(tmp_path, replay=Silent(tmp_path)).finish(make_state, MANIFEST, KNOWN)
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint and (checkpoint.step, checkpoint.parts, checkpoint.missing) == (40, ["agent"], ["replay"])
    assert "without the part of the replay: replay.save has not answered" in caplog.text
    assert Checkpoints(tmp_path).latest("replay") is None
    assert "has no part of the replay, which was away" in caplog.text


def test_a_part_that_fails_does_not_take_the_others_with_it(tmp_path):
    def save(data, meta):
        Checkpoints(tmp_path).add_part(data["name"], "logger", object())

    make_saver(tmp_path, logger=DirectClient("logger", {"save": save})).finish(make_state, MANIFEST, KNOWN)
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint and (checkpoint.parts, checkpoint.missing) == (["agent"], ["logger"])


def test_a_role_resumes_from_the_newest_checkpoint_that_has_its_part(tmp_path, open_role):
    role = open_role()
    send(role, range(30), 1)
    make_saver(tmp_path, replay=DirectClient("replay", role.methods())).finish(make_state, MANIFEST, KNOWN)
    make_saver(tmp_path, replay=Silent(tmp_path)).finish(make_state, MANIFEST, KNOWN)
    newest, whole = Checkpoints(tmp_path).latest(), Checkpoints(tmp_path).latest("replay")
    assert newest and whole and (newest.step, whole.step) == (40, 30)


def test_the_last_checkpoint_is_tried_again(tmp_path):
    states = iter([{"bad": object()}, make_state()])
    make_saver(tmp_path).finish(lambda: next(states), MANIFEST, KNOWN)
    assert Checkpoints(tmp_path).latest()


def test_no_last_checkpoint_is_an_error_that_names_the_newest(tmp_path):
    (tmp_path / "ckpt").touch()
    with pytest.raises(NotSaved, match=r"no checkpoint was written .*ckpt: .*; there is none: all updates are lost"):
        make_saver(tmp_path).finish(make_state, MANIFEST, KNOWN)
    (tmp_path / "ckpt").unlink()
    make_saver(tmp_path).finish(make_state, MANIFEST, KNOWN)
    with pytest.raises(
        NotSaved, match=r"object is not an array.*; the newest is step-000000000040-0001: later updates"
    ):
        make_saver(tmp_path).finish(lambda: {"bad": object()}, MANIFEST, KNOWN)
    assert NotSaved.is_fatal, "a restart would only lose more"


def test_a_checkpoint_that_fails_while_the_run_goes_on_is_told_whenever_the_reason_changes(tmp_path, caplog):
    def raise_error():
        raise KeyError("weights")

    caplog.set_level(logging.WARNING)
    saver = make_saver(tmp_path)
    for make in (
        raise_error,
        raise_error,
        lambda: {"bad": object()},
        lambda: {"bad": object()},
        make_state,
        raise_error,
    ):
        saver.save(make, MANIFEST, KNOWN)
        saver.wait()
    told = [record.message for record in caplog.records if record.message.startswith("no checkpoint")]
    reasons = ["KeyError: 'weights'", "cannot save /bad: object is", "KeyError: 'weights'"]
    assert len(told) == len(reasons) and all(part in text for part, text in zip(reasons, told, strict=True))
    assert Checkpoints(tmp_path).latest()


def test_an_error_that_ends_the_run_is_not_caught(tmp_path):
    def explode():
        raise NonFiniteLoss("loss is nan")

    for write in (make_saver(tmp_path).save, make_saver(tmp_path).finish):
        with pytest.raises(NonFiniteLoss):
            write(explode, MANIFEST, KNOWN)


def test_there_is_nothing_to_save_before_the_first_step(tmp_path):
    make_saver(tmp_path).finish(make_state, {**MANIFEST, "updates": 0}, ReplayCounts())
    assert Checkpoints(tmp_path).latest() is None and list((tmp_path / "ckpt").iterdir()) == []
