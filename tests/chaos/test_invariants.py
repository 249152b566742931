"""The check behind every chaos run finds steps that are missing or there twice, and processes that are left."""

import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.chaos import invariants
from benchmarks.chaos.fleet import ChaosFleet
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.replay import Store
from dreamfleet.roles.replay.counts import Counts, CountsFile

LIFE = 7


@pytest.fixture
def fleet(tmp_path):
    fleet = ChaosFleet(tmp_path)
    draft = Checkpoints(fleet.logdir).draft(100)
    draft.commit({"updates": 41, "counts": {"inserts": 100}})
    yield fleet
    fleet.close()


def fill(fleet: ChaosFleet, steps: list[int], counted: int) -> None:
    """A replay with these steps, of which so many were counted."""
    directory = fleet.logdir / "replay"
    with Store(9, 1000, directory=directory / "train", sync_every=0.0) as store:
        for step in steps:
            row = {"vector": np.array([LIFE, step, 0], np.float32), "is_last": False}
            store.add({**row, "is_first": step == steps[0]}, 0)
    file = CountsFile(directory / "counts")
    file.write(Counts(counted, 0))
    file.close()


@pytest.mark.parametrize(
    ("steps", "counted", "lost", "doubled"),
    [
        (list(range(50)), 50, 0, 0),
        (list(range(50)), 52, 2, 0),
        ([*range(20), *range(21, 50)], 49, 1, 0),
        ([*range(20), 19, *range(20, 50)], 51, 1, 1),
    ],
)
def test_missing_and_doubled_steps_are_found(fleet, steps, counted, lost, doubled):
    fill(fleet, steps, counted)
    verdict = invariants.check_data(fleet)
    assert (verdict.lost_steps, verdict.doubled_steps) == (lost, doubled)
    assert verdict.ratio_error == pytest.approx(0.0)


def test_what_is_left_is_found(fleet):
    (fleet.temporary / "dreamfleet-socket").mkdir()
    (fleet.logdir / "ckpt" / ".draft-step-000000000001-0001").mkdir()
    environ = {**os.environ, "DREAMFLEET_CHAOS": str(fleet.root / "control")}
    orphan = subprocess.Popen([sys.executable, "-c", "input()"], env=environ, stdin=subprocess.PIPE)
    try:
        verdict = invariants.Verdict()
        invariants.check_ended(fleet, verdict)
        assert verdict.orphans == 1
        assert len(verdict.leftovers) == 2
    finally:
        orphan.communicate()
