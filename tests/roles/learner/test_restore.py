"""What a learner starts from: its own checkpoint, another run's, or nothing; and agents that cannot be saved."""

import logging

import numpy as np
import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import CheckpointError, ConfigError
from dreamfleet.launch.serial import DirectClient
from dreamfleet.options import read_args
from dreamfleet.roles.learner.role import Learner
from dreamfleet.roles.wiring import Peers
from dreamfleet.testing import CountingAgent
from tests.fleet import make_args


class PickyAgent(CountingAgent):
    """Raises at what it does not like."""

    def __init__(self, error=None, state=None):
        super().__init__()
        self.error, self.state, self.loaded = error, state, None

    def load(self, data, regex=None):
        if self.error:
            raise self.error
        self.loaded = (data["trained"], regex)

    def save(self):
        return self.state() if self.state else super().save()


def make_learner(logdir, agent, **options):
    client = DirectClient("away", {"add": lambda data, meta: {}})  # which adds no part
    return Learner(agent, Peers(client, client), read_args(make_args(logdir, **options)))


def save(logdir, step=1234, updates=5):
    draft = Checkpoints(logdir).draft(step)
    draft.write("agent", {"trained": updates, "weights": np.full(3, updates)})
    draft.commit({"updates": updates, "elapsed_s": 2.5, "counts": {"inserts": step}})


def test_a_stop_right_after_a_resume_keeps_the_step(tmp_path):
    save(tmp_path)
    learner = make_learner(tmp_path, CountingAgent())
    learner.restore()
    assert (learner.step, learner.updates) == (1234, 5)
    learner.finish()
    newest = Checkpoints(tmp_path).latest()
    assert newest and newest.name == "step-000000001234-0002"
    assert newest.manifest["counts"]["inserts"] == 1234 and newest.missing == ["logger", "replay"]


def test_another_run_is_a_start(tmp_path):
    save(tmp_path / "other", updates=8)
    agent = PickyAgent()
    make_learner(tmp_path / "run", agent, from_checkpoint=str(tmp_path / "other"), from_checkpoint_regex="w").restore()
    assert agent.loaded == (8, "w")


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (
            CheckpointError("the checkpoint has other shapes: model/a (3,) instead of (4,)"),
            r"\(the checkpoint has other",
        ),
        (KeyError("values"), r"\(KeyError: 'values'\)"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path, error, part, caplog):
    save(tmp_path / "other")
    learner = make_learner(tmp_path / "run", PickyAgent(error), from_checkpoint=str(tmp_path / "other"))
    with pytest.raises(ConfigError, match=rf"run\.from_checkpoint='.*other' cannot be loaded by PickyAgent .*{part}"):
        learner.restore()
    assert ("raise self.error" in caplog.text) == isinstance(error, KeyError), "the traceback of what is the user's own"


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path):
    learner = make_learner(tmp_path / "run", CountingAgent(), from_checkpoint=str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"run\.from_checkpoint=.*holds no usable checkpoint"):
        learner.restore()


def test_a_run_whose_agent_changed_is_refused(tmp_path):
    save(tmp_path)
    with pytest.raises(ConfigError, match=r"logdir=.* holds step-.*, which does not fit the agent \(other shapes\)"):
        make_learner(tmp_path, PickyAgent(CheckpointError("other shapes"))).restore()


def test_an_agent_that_cannot_be_saved_is_refused_before_it_learns(tmp_path):
    agent = PickyAgent(state=lambda: {"net": {"layer": object()}})
    with pytest.raises(ConfigError, match=r"agent='PickyAgent' cannot be saved \(cannot save /net/layer: object"):
        make_learner(tmp_path, agent).restore()


def test_an_agent_that_can_be_saved_only_later_is_warned_about(tmp_path, caplog):
    def state():
        raise AttributeError("no params yet")

    with caplog.at_level(logging.WARNING):
        make_learner(tmp_path, PickyAgent(state=state)).restore()
    assert "agent.save() raised AttributeError: no params yet" in caplog.text
