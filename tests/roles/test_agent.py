"""The agent process: an actor and a learner that end together."""

import threading

import pytest

from dreamfleet import lifecycle
from dreamfleet.roles.agent import run_sides
from tests.fleet import make_args


@pytest.fixture
def run_with(tmp_path):
    """Runs a learner beside an actor that does not stop when it is asked to, as with a policy that hangs."""
    is_over = threading.Event()

    def run(learn):
        run_sides(object(), learn, lambda agent, barrier, args: is_over.wait(), make_args(tmp_path), actor_stop_s=0.05)

    yield run
    is_over.set()
    lifecycle.reset()


def test_an_actor_that_does_not_stop_does_not_hold_up_the_end(run_with, caplog):
    run_with(lambda agent, barrier, args: None)
    assert "did not stop" in caplog.text


def test_an_actor_that_does_not_stop_does_not_hide_the_cause(run_with):
    def fail(agent, barrier, args):
        raise ValueError("the loss exploded")

    with pytest.raises(ValueError, match="the loss exploded"):
        run_with(fail)
