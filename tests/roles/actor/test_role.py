"""The policy behind the server: who gets actions and who is refused."""

import math
import types

import numpy as np
import pytest

from dreamfleet import lifecycle
from dreamfleet.errors import BadRequest
from dreamfleet.options import read_args
from dreamfleet.roles.actor.requests import ActRequest
from dreamfleet.roles.actor.role import Actor, LiveEnvs
from dreamfleet.roles.protocol import ACT, ENV_ID, IS_EVAL, ActSession, Hello
from dreamfleet.roles.wiring import Peers
from tests.fleet import make_args


class FewSlots:
    """Acts in the slots that it was given at the start; an action is the number of the environment's steps."""

    def init_slots(self, num_slots):
        self._counts = np.zeros(num_slots + 1, int)

    def policy_slots(self, slots, is_new, obs, mode):
        self._counts[slots] = np.where(is_new, 0, self._counts[slots]) + 1
        return {"action": self._counts[slots].copy()}, {}


NOBODY = types.SimpleNamespace(peer="nobody", session="", is_plain=False)  # to whom nothing is sent


@pytest.fixture
def actor(tmp_path):
    """Expects two environments."""
    options = read_args(make_args(tmp_path, envs=2, eval_envs=0, envs_per_worker=1))
    yield Actor(FewSlots(), Peers(NOBODY, NOBODY), options, send_delay_s=0.0)  # pyright: ignore
    lifecycle.reset()


def make_request(env_id: int) -> ActRequest:
    flags = {key: np.zeros(1, bool) for key in ("is_first", "is_last", "is_terminal")}
    obs = {**flags, "reward": np.zeros(1, np.float32)}
    request = ActRequest([env_id], False, True, obs)
    request.spec = {key: (value.dtype, ()) for key, value in obs.items()}
    return request


def test_environments_that_are_too_many_are_refused_and_the_others_go_on(actor):
    actor.act([make_request(10), make_request(20)])
    replies, transition = actor.act([make_request(30), make_request(20)])
    assert isinstance(replies[0], BadRequest)
    assert str(replies[0]) == (
        "environments [30] are too many: the agent acts in at most 2 environments, and there are 2 already"
    )
    assert replies[1]["action"] == 2 and transition["action"].tolist() == [2]
    assert lifecycle.failure() is None


def test_a_batch_of_which_all_are_too_many_makes_no_transition(actor):
    actor.act([make_request(10), make_request(20)])
    replies, transition = actor.act([make_request(30)])
    assert isinstance(replies[0], BadRequest) and not transition
    actor.send(transition)
    assert actor.act([make_request(10)])[0][0]["action"] == 2


def make_hello(**facts) -> Hello:
    spaces = {"reward": "float32()", **dict.fromkeys(("is_first", "is_last", "is_terminal"), "bool()")}
    return Hello(**{"role": "env", "session": "worker", "owner": "there", "envs": (10,), "obs_space": spaces, **facts})


def test_an_environment_that_is_stepped_elsewhere_stays_there(actor):
    actor.check_hello(make_hello())
    data = {key: value[0] for key, value in make_request(10).obs.items()}
    request = actor.parsers()[ACT]({**data, ENV_ID: 10, IS_EVAL: False}, ActSession("worker").to_meta())
    actor.act([request])
    for is_eval in (False, True):
        with pytest.raises(BadRequest, match="environment 10 is stepped on "):
            actor.check_hello(make_hello(session="other", owner="stranger", is_eval=is_eval))
    actor.check_hello(make_hello())


def test_workers_of_another_task_are_told_once(actor, caplog):
    for number in range(20):
        actor.check_hello(make_hello(task=f"task{number}", session=f"{number}"))
    (line,) = [record.message for record in caplog.records if "have task" in record.message]
    assert "environments 10 on  have task task0" in line


def test_what_timed_out_is_forgotten():
    live = LiveEnvs()
    live.mark_seen([1, 2], False)
    live.forget([1, 9])
    assert (live.age_s(1, False), live.age_s(2, True)) == (math.inf, math.inf)
    assert live.age_s(2, False) < math.inf
