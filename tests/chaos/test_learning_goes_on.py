"""An agent that is killed goes on from its last checkpoint: what it had learned is still there."""

import json
import os
import signal

import numpy as np
import pytest

from benchmarks.chaos.fleet import ChaosFleet
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.testing import OneStepReward

pytestmark = [pytest.mark.chaos, pytest.mark.learning, pytest.mark.distributed, pytest.mark.timeout(3000)]

EPISODES = 100
LEARNED = 0.9 * OneStepReward.best_score
DIP = 0.1
OPTIONS = {
    "preset": "tiny",
    "task": "dreamfleet.testing.probes:OneStepReward",
    "dreamer.size": "tiny",
    "dreamer.learning_rate": 1e-3,
    "batch_length": 16,
    "report_length": 8,
    "run.train_ratio": 64.0,
    "run.log_every": 1.0,
    "run.save_every": 10.0,
}


def read_scores(fleet: ChaosFleet) -> list[tuple[int, float]]:
    """Step and score of every episode so far."""
    path = fleet.logdir / "scores.jsonl"
    text = path.read_text() if path.exists() else ""
    lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # the last may be half written
    return [(line["step"], line["episode/score"]) for line in lines]


def test_the_learning_curve_does_not_dip(tmp_path):
    with ChaosFleet(tmp_path, options=OPTIONS) as fleet:

        def has_learned_and_saved() -> bool:
            scores = read_scores(fleet)[-EPISODES:]
            if len(scores) < EPISODES or np.mean([score for _, score in scores]) < LEARNED:
                return False
            checkpoint = Checkpoints(fleet.logdir).latest()
            return checkpoint is not None and checkpoint.step >= scores[0][0]

        fleet.eventually(has_learned_and_saved, "a score that is worth keeping", 2400.0)
        before = [score for _, score in read_scores(fleet)]
        old = fleet.pid("agent")
        os.kill(old, signal.SIGKILL)
        fleet.eventually(lambda: fleet.find("agent") not in (None, old), "another agent")
        fleet.eventually(lambda: len(read_scores(fleet)) >= len(before) + EPISODES, f"{EPISODES} more episodes", 600.0)
        after = [score for _, score in read_scores(fleet)[len(before) : len(before) + EPISODES]]
        print(f"mean score {np.mean(before[-EPISODES:]):.3f} before, {np.mean(after):.3f} after")
        assert np.mean(after) > np.mean(before[-EPISODES:]) - DIP
        steps = [step for step, _ in read_scores(fleet)]
        assert steps == sorted(steps)
        fleet.stop()
