"""The agent process: an actor and a learner that end together."""

import threading

import pytest

from dreamfleet import lifecycle
from dreamfleet.launch.combined import resolved_addresses
from dreamfleet.options import read_args
from dreamfleet.roles.actor.role import parallel_actor
from dreamfleet.roles.agent import run_sides
from dreamfleet.roles.learner.role import parallel_learner
from tests.fleet import make_args


@pytest.fixture
def run_with(tmp_path):
    """Runs a learner beside an actor that does not stop when it is asked to, as with a policy that hangs."""
    is_over = threading.Event()

    def run(learn):
        run_sides(object(), learn, lambda agent, barrier, args: is_over.wait(), make_args(tmp_path), actor_stop_s=0.05)

    yield run
    is_over.set()
    for thread in threading.enumerate():
        if thread.name == "actor":  # asks for a stop when it ends, which must not be that of another test
            thread.join()
    lifecycle.reset()


def test_an_actor_that_does_not_stop_does_not_hold_up_the_end(run_with, caplog):
    run_with(lambda agent, barrier, args: None)
    assert "did not stop" in caplog.text


def test_an_actor_that_does_not_stop_does_not_hide_the_cause(run_with):
    def fail(agent, barrier, args):
        raise ValueError("the loss exploded")

    with pytest.raises(ValueError, match="the loss exploded"):
        run_with(fail)


class FailsAt:
    """An agent that raises where it is asked to."""

    def __init__(self, name: str):
        self._name = name

    def init_policy(self, batch_size):
        return self._make("init_policy")

    def init_train(self, batch_size):
        return self._make("init_train")

    def _make(self, name: str) -> tuple:
        if name == self._name:
            raise MemoryError(f"out of memory in {name}")
        return ()


@pytest.mark.parametrize("name", ["init_policy", "init_train"])
def test_a_side_that_fails_before_they_meet_does_not_leave_the_other_waiting(tmp_path, name, failing_role):
    # The actor's end is waited for as long as it takes: only its own end lets the test pass.
    args = read_args(make_args(tmp_path))
    with resolved_addresses(args) as args, pytest.raises(MemoryError, match=f"out of memory in {name}"):
        run_sides(FailsAt(name), parallel_learner, parallel_actor, args, actor_stop_s=1e6)
