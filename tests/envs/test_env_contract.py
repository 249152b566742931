"""What an environment must offer, and the environments with nothing to learn."""

import elements
import numpy as np
import pytest

from dreamfleet.envs import Env, EnvGroup, check_spaces, reset_action
from dreamfleet.envs.dummy import Dummy
from dreamfleet.errors import EnvError
from dreamfleet.testing import CountingEnv


@pytest.mark.parametrize("key", ["reward", "is_first", "is_last", "is_terminal"])
def test_a_missing_or_mistyped_key_is_named(key):
    env = Dummy()
    check_spaces(env)
    env.obs_space[key] = elements.Space(np.int32, (2,))
    with pytest.raises(EnvError, match=rf"Dummy\.obs_space\['{key}'\] is .*int32"):
        check_spaces(env)
    del env.obs_space[key]
    with pytest.raises(EnvError, match=f"Dummy.obs_space has no '{key}'"):
        check_spaces(env)


def test_an_action_space_without_reset_is_refused():
    env = Dummy()
    del env.act_space["reset"]
    with pytest.raises(EnvError, match=r"Dummy\.act_space has no 'reset'"):
        check_spaces(env)


@pytest.mark.parametrize("key", ["action", "envid", "is_eval", "reset", "stepid", "consec"])
def test_an_observation_that_would_hide_another_key_is_refused(key):
    env = Dummy()
    env.obs_space[key] = elements.Space(np.float32)
    with pytest.raises(EnvError, match=f"Dummy.obs_space has .*'{key}'"):
        check_spaces(env)


class CheckedEnv(CountingEnv):
    """Accepts only actions that its space has, as a wrapper may that checks them, whatever they are for."""

    def step(self, action):
        assert all(value in self.act_space[key] for key, value in action.items()), action
        return super().step({**action, "action": np.int32(0)})


@pytest.mark.parametrize(
    ("dtype", "shape", "low", "high"),
    [
        (np.int32, (), 1, 5),
        (np.int32, (2,), [-4, 3], [-1, 9]),
        (np.float32, (2,), 0.5, 1.0),
        (np.float32, (2,), -np.inf, -1.0),
        (np.float32, (2,), -1.0, 1.0),
    ],
)
def test_a_reset_action_is_one_of_the_space(dtype, shape, low, high):
    env = CheckedEnv()
    env.act_space = {**env.act_space, "action": elements.Space(dtype, shape, np.array(low), np.array(high))}
    group = EnvGroup(lambda _: env, [0])
    assert group.step(group.reset_actions())["is_first"].all() and group.rebuilds == 0


def test_a_reset_action_has_every_entry():
    env = Dummy()
    env.act_space["move"] = elements.Space(np.float32, (3,), 1, 2)
    action = reset_action(env)
    assert action.keys() == {"action", "move", "reset"}
    assert action["reset"] and action["reset"].dtype == bool
    assert action["move"].shape == (3,) and action["move"].dtype == np.float32


def test_shipped_environments_keep_the_contract():
    for env in (Dummy("image"), Dummy("vector"), CountingEnv()):
        assert isinstance(env, Env)
        check_spaces(env)
        obs = env.step(reset_action(env))
        assert obs.keys() == env.obs_space.keys()
        for key, space in env.obs_space.items():
            value = np.asarray(obs[key])
            assert (value.shape, value.dtype) == (space.shape, space.dtype), key


@pytest.mark.parametrize("kind", ["image", "vector"])
def test_dummy_counts_its_steps_and_ends_by_time_limit(kind):
    env = Dummy(kind, length=3, size=8)
    assert env.obs_space[kind].shape == ((8, 8, 3) if kind == "image" else (7,))
    seen = []
    for turn in range(9):
        obs = env.step({"action": 0, "reset": turn == 6})
        seen.append((int(obs[kind].flat[0]), obs["is_first"], obs["is_last"], float(obs["reward"])))
        assert not obs["is_terminal"]
    episode = [(0, True, False, 0.0), (1, False, False, 1.0), (2, False, False, 1.0), (3, False, True, 1.0)]
    assert seen == [*episode, *episode[:2], *episode[:3]]


@pytest.mark.parametrize("kind", ["image", "vector"])
def test_dummy_is_the_same_for_a_seed_and_does_not_change_what_it_returned(kind):
    first, again, other = (Dummy(kind, seed=seed).step({"reset": True})[kind] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    env = Dummy(kind)
    before = env.step({"reset": True})[kind]
    env.step({"action": 0, "reset": False})
    assert before.flat[0] == 0
