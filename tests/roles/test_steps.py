"""The steps of a run: reached, and exceeded by one batch of the actor at most. Its updates: reached exactly."""

import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.launch.serial import run_serial
from dreamfleet.metrics.progress import read_progress
from dreamfleet.options import read_args
from dreamfleet.testing import CountingAgent
from tests.fleet import make_args, make_factories, read_inserts, running_fleet

pytestmark = pytest.mark.distributed

STEPS = 2000


def make_quick(logdir, **options):
    """Many environments, and a learner that holds nobody up."""
    defaults = {"envs": 16, "eval_envs": 0, "envs_per_worker": 8, "actor_batch": 8, "train_ratio": 0.0, "steps": STEPS}
    return make_args(logdir, **{**defaults, **options})


class SlowLearner(CountingAgent):
    """Is at work for a while when the last steps are taken."""

    def train(self, carry, data):
        self._lock.acquire(timeout=1.0)
        self._lock.release()
        return super().train(carry, data)


@pytest.mark.parametrize("agent", [CountingAgent, SlowLearner])
@pytest.mark.parametrize("transport", ["auto", "portal"])
def test_a_run_exceeds_its_steps_by_one_batch_at_most(tmp_path, agent, transport):
    with running_fleet(make_quick(tmp_path, transport=transport), agent) as fleet:
        fleet.join()
    assert STEPS <= read_inserts(tmp_path) < STEPS + 8


def test_a_resumed_run_exceeds_its_steps_by_one_batch_at_most(tmp_path):
    for steps in (STEPS, STEPS + 100):
        with running_fleet(make_quick(tmp_path, steps=steps)) as fleet:
            fleet.join()
        assert steps <= read_inserts(tmp_path) < steps + 8


def test_evaluation_goes_on_beside_the_last_steps(tmp_path):
    with running_fleet(make_quick(tmp_path, eval_envs=16)) as fleet:
        fleet.join()
    assert STEPS <= read_inserts(tmp_path) < STEPS + 8


@pytest.mark.parametrize("train_ratio", [0.0, 8.0])
def test_a_serial_run_exceeds_its_steps_by_one_batch_at_most(tmp_path, train_ratio):
    args = make_quick(tmp_path, train_ratio=train_ratio)
    run_serial(make_factories(args), read_args(args))
    assert STEPS <= read_inserts(tmp_path) < STEPS + 16


def test_a_serial_run_without_a_ratio_acts_and_learns_in_turns(tmp_path):
    args = make_quick(tmp_path)
    run_serial(make_factories(args), read_args(args))
    turns = -(-read_inserts(tmp_path) // args.envs)
    progress = read_progress(tmp_path)
    assert progress and 0 < progress.updates <= turns


def read_updates(logdir) -> int:
    checkpoint = Checkpoints(logdir).latest()
    assert checkpoint
    return checkpoint.manifest["updates"]


def test_a_run_ends_with_its_last_update(tmp_path):
    for updates in (70, 100):  # the second one resumes
        with running_fleet(make_args(tmp_path, steps=0, updates=updates)) as fleet:
            fleet.join()
        assert read_updates(tmp_path) == updates
    progress = read_progress(tmp_path)
    assert progress and progress.goal() == ("update", 100, 100)


@pytest.mark.parametrize("train_ratio", [0.0, 8.0])
def test_a_serial_run_ends_with_its_last_update(tmp_path, train_ratio):
    for updates in (70, 100):
        args = make_args(tmp_path, steps=0, updates=updates, train_ratio=train_ratio)
        assert run_serial(make_factories(args), read_args(args)).state == "complete"
        assert read_updates(tmp_path) == updates
