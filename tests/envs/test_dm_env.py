"""Environments with dm_env's interface."""

import numpy as np
import pytest

from dreamfleet.envs import as_env, check_spaces, reset_action
from dreamfleet.envs.dm_env import FromDmEnv
from dreamfleet.errors import EnvError

dm_env = pytest.importorskip("dm_env", reason="comes with the extras dmc and bsuite")
specs = pytest.importorskip("dm_env.specs")


class Walk(dm_env.Environment):
    """Three steps; `discount` is that of the last one."""

    def __init__(self, observation, observation_spec, action_spec, discount=0.0):
        self._observation, self._observation_spec, self._action_spec = observation, observation_spec, action_spec
        self._discount = discount
        self._count = 0
        self.taken = []
        self.is_closed = False

    def observation_spec(self):
        return self._observation_spec

    def action_spec(self):
        return self._action_spec

    def reset(self):
        self._count = 0
        return dm_env.restart(self._observation)

    def step(self, action):
        self.taken.append(action)
        self._count += 1
        if self._count < 3:
            return dm_env.transition(0.5, self._observation)
        return dm_env.truncation(0.5, self._observation, self._discount)

    def close(self):
        self.is_closed = True


def make_walk(**options) -> Walk:
    observation = {
        "arm": {"angle": np.array([0.1, 0.2]), "is_stuck": np.array(True)},
        "count": np.array(7, np.int64),
        "eyes": [np.zeros((64, 64, 3), np.uint8)],
    }
    spec = {
        "arm": {"angle": specs.Array((2,), np.float64), "is_stuck": specs.Array((), np.bool_)},
        "count": specs.BoundedArray((), np.int64, 0, 9),
        "eyes": [specs.Array((64, 64, 3), np.uint8)],
    }
    action = {
        "jump": specs.BoundedArray((), np.int32, 0, 2),
        "arm": {"move": specs.BoundedArray((2,), np.float64, -3.0, np.array([3.0, 5.0]))},
    }
    return Walk(observation, spec, action, **options)


def test_nested_specs_become_flat_spaces():
    env = FromDmEnv(make_walk())
    check_spaces(env)
    shown = {k: (s.dtype.name, s.shape) for k, s in env.obs_space.items()}
    assert (
        shown.items()
        >= {
            "arm/angle": ("float32", (2,)),
            "arm/is_stuck": ("bool", ()),
            "count": ("int32", ()),
            "eyes/0": ("uint8", (64, 64, 3)),
        }.items()
    )
    assert (env.obs_space["count"].low, env.obs_space["count"].high) == (0, 10)
    assert (env.act_space["jump"].low, env.act_space["jump"].high) == (0, 3)
    assert env.act_space["arm/move"].high.tolist() == [3, 5]
    obs = env.step(reset_action(env))
    for key, space in env.obs_space.items():
        assert (np.asarray(obs[key]).dtype, np.shape(obs[key])) == (space.dtype, space.shape), key
    assert obs["count"] == 7


def test_actions_arrive_in_the_form_of_their_spec():
    inner = make_walk()
    env = as_env(inner)
    env.step(reset_action(env))
    env.step({"jump": np.int32(2), "arm/move": np.float32([1, -1]), "reset": np.bool_(False)})
    (action,) = inner.taken
    assert action["jump"] == 2 and action["jump"].dtype == np.int32
    assert action["arm"]["move"].tolist() == [3, -3] and action["arm"]["move"].dtype == np.float64


@pytest.mark.parametrize(("discount", "is_terminal"), [(0.0, True), (1.0, False)])
def test_ends_are_terminal_where_the_discount_says_so(discount, is_terminal):
    env = FromDmEnv(make_walk(discount=discount))
    act = {**reset_action(env), "reset": np.bool_(False)}
    history = [env.step(act) for _ in range(5)]
    assert [obs["is_first"] for obs in history] == [True, False, False, False, True]
    assert [obs["is_last"] for obs in history] == [False, False, False, True, False]
    assert [obs["is_terminal"] for obs in history] == [False, False, False, is_terminal, False]
    assert [float(obs["reward"]) for obs in history] == [0, 0.5, 0.5, 0.5, 0]


@pytest.mark.parametrize(
    ("dtype", "shape", "name"), [(np.uint8, (64, 64, 3), "image"), (np.float32, (10, 5), "vector")]
)
def test_a_lone_spec_gets_a_name(dtype, shape, name):
    env = FromDmEnv(Walk(np.zeros(shape, dtype), specs.Array(shape, dtype), specs.BoundedArray((), np.int64, 0, 2)))
    assert env.step(reset_action(env))[name].shape == env.obs_space[name].shape == shape
    assert env.act_space.keys() == {"action", "reset"}


def test_close_and_names_that_are_ours():
    inner = make_walk()
    as_env(inner).close()
    assert inner.is_closed
    with pytest.raises(EnvError, match=r"\['reward'\]"):
        FromDmEnv(Walk({"reward": np.zeros(1)}, {"reward": specs.Array((1,), np.float32)}, specs.Array((), np.int32)))
    with pytest.raises(EnvError, match="'text' has the spec"):
        FromDmEnv(Walk({"text": "x"}, {"text": specs.StringArray(())}, specs.Array((), np.int32)))
