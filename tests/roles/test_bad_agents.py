"""Agents that break their contract: the run ends with what they did, and never stands still or loops."""

import numpy as np
import pytest

from dreamfleet.errors import AgentError, RunFailed
from dreamfleet.launch.serial import run_serial
from dreamfleet.options import read_args
from dreamfleet.testing import CountingAgent
from tests.fleet import make_args, make_factories, running_fleet

pytestmark = pytest.mark.distributed

BAD_OUTPUTS = {
    "object": (lambda rows: {"extra": np.array([None] * rows)}, r"outs\['extra'\] has dtype object"),
    "string": (lambda rows: {"extra": np.array(["a"] * rows)}, r"outs\['extra'\] has dtype <U1"),
    "log": (lambda rows: {"log/extra": np.array([None] * rows)}, r"outs\['log/extra'\] has dtype object"),
    "no batch": (lambda rows: {"extra": np.float32(1)}, r"outs\['extra'\] has shape \(\), expected \d+ rows"),
}


class BadOutputs(CountingAgent):
    def __init__(self, kind: str):
        super().__init__()
        self._make = BAD_OUTPUTS[kind][0]

    def policy(self, carry, obs, mode="train"):
        carry, acts, outs = super().policy(carry, obs, mode)
        return carry, acts, outs | self._make(len(obs["step"]))


def make_agent_class(kind: str):
    return lambda: BadOutputs(kind)


@pytest.mark.parametrize("kind", BAD_OUTPUTS)
def test_bad_outputs_are_the_cause_of_the_failure(tmp_path, kind):
    args = make_args(tmp_path, max_restarts=1)
    with (
        pytest.raises(RunFailed, match=rf"(?s)agent failed: AgentError: policy \(\w+\): {BAD_OUTPUTS[kind][1]}"),
        running_fleet(args, make_agent_class(kind)) as fleet,
    ):
        fleet.join()
    assert (tmp_path / "logs" / "env0.log").read_text().count("starting new episodes") < 10


def test_bad_outputs_end_a_run_whose_agent_is_a_thread(tmp_path):
    args = make_args(tmp_path, agent_process=False)
    with (
        pytest.raises(RunFailed, match=r"outs.*has dtype object"),
        running_fleet(args, make_agent_class("object")) as run,
    ):
        run.join()


def test_bad_outputs_end_a_serial_run(tmp_path):
    args = make_args(tmp_path)
    with pytest.raises(AgentError, match=r"outs.*has dtype object"):
        run_serial(make_factories(args, make_agent_class("object")), read_args(args))


class ChangingOutputs(CountingAgent):
    """Its outputs change in a way that is only seen where rows are joined."""

    def policy(self, carry, obs, mode="train"):
        carry, acts, outs = super().policy(carry, obs, mode)
        return carry, acts, outs | {"extra": np.zeros((len(obs["step"]), 1 + (self.policy_rows > 100)), np.float32)}


def test_outputs_of_varying_shape_are_the_cause_of_the_failure(tmp_path):
    args = make_args(tmp_path, max_restarts=0)
    message = (
        r"agent failed: AgentError: policy \(\w+\): outs\['extra'\] is float32\(\d, 2\), in the first call float32"
    )
    with pytest.raises(RunFailed, match=message), running_fleet(args, ChangingOutputs) as fleet:
        fleet.join()


class NoActions(CountingAgent):
    def policy(self, carry, obs, mode="train"):
        carry, acts, outs = super().policy(carry, obs, mode)
        return carry, {"akshun": acts["action"]}, outs


def test_actions_that_the_space_has_and_the_agent_has_not(tmp_path):
    args = make_args(tmp_path, max_restarts=0)
    message = (
        r"AgentError: the policy's actions have no \['action'\], which the action space has; got \['akshun', 'reset'\]"
    )
    with pytest.raises(RunFailed, match=message), running_fleet(args, NoActions) as fleet:
        fleet.join()


class BadMetrics(CountingAgent):
    def train(self, carry, data):
        carry, outs, _ = super().train(carry, data)
        return carry, outs, {"extra": np.array([None])}


def test_metrics_that_cannot_be_sent_are_the_cause_of_the_failure(tmp_path):
    args = make_args(tmp_path, max_restarts=0)
    with (
        pytest.raises(RunFailed, match=r"agent failed: .*train/extra.*object"),
        running_fleet(args, BadMetrics) as fleet,
    ):
        fleet.join()


class FailsToBegin(CountingAgent):
    def init_policy(self, batch_size):
        raise MemoryError("no room for carries")


class FailsToTrain(CountingAgent):
    def init_train(self, batch_size):
        raise MemoryError("no room for updates")


@pytest.mark.parametrize(("agent", "cause"), [(FailsToBegin, "for carries"), (FailsToTrain, "for updates")])
def test_an_agent_that_fails_before_it_begins_is_the_cause_of_the_failure(tmp_path, agent, cause):
    args = make_args(tmp_path, max_restarts=1)
    with (
        pytest.raises(RunFailed, match=f"agent failed: MemoryError: no room {cause}"),
        running_fleet(args, agent) as fleet,
    ):
        fleet.join()
