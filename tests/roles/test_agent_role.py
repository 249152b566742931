"""The agent process: an actor and a learner that end together."""

import threading

import pytest

from dreamfleet import lifecycle
from dreamfleet.roles import agent as agent_role
from tests.fleet import make_args


@pytest.fixture
def held_actor(monkeypatch):
    """An actor that does not stop when it is asked to, as with a policy that hangs."""
    is_over = threading.Event()
    monkeypatch.setattr(agent_role, "parallel_actor", lambda agent, barrier, args: is_over.wait())
    monkeypatch.setattr(agent_role, "ACTOR_STOP_S", 0.05)
    yield
    is_over.set()
    lifecycle.reset()


def test_an_actor_that_does_not_stop_does_not_hold_up_the_end(held_actor, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(agent_role, "parallel_learner", lambda agent, barrier, args: None)
    agent_role.parallel_agent(object, make_args(tmp_path))
    assert "did not stop" in caplog.text


def test_an_actor_that_does_not_stop_does_not_hide_the_cause(held_actor, monkeypatch, tmp_path):
    def fail(agent, barrier, args):
        raise ValueError("the loss exploded")

    monkeypatch.setattr(agent_role, "parallel_learner", fail)
    with pytest.raises(ValueError, match="the loss exploded"):
        agent_role.parallel_agent(object, make_args(tmp_path))
