"""Numbers in Gymnasium's info as log keys."""

import logging

import gymnasium
import numpy as np
from gymnasium import spaces

from dreamfleet.envs import make_env, reset_action
from dreamfleet.envs.gymnasium import FromGymnasium, probe_info
from dreamfleet.envs.infos import _say_unlogged


class Informer(gymnasium.Env):
    """Has an info of many kinds, some of it only at the end of an episode."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(2, 5, (1,))

    def __init__(self):
        self.steps = 0
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {"level": 7}

    def step(self, action):
        self.actions.append(action)
        self.steps += 1
        done = self.steps == 3
        info = {
            "height": np.float64(0.5 * self.steps),
            "is_lucky": True,
            "name": "informer",
            "map": np.zeros((2, 2)),
            "nothing": None,
            "energy": {"left": np.array(3), "note": "x"},
        }
        return np.zeros(2, np.float32), 1.0, done, False, info | ({"success_of_informer": 1.0} if done else {})


LOGGED = {"log/level", "log/height", "log/is_lucky", "log/energy/left"}


def play(env) -> list[dict]:
    act = {"action": np.zeros(1, np.float32), "reset": np.bool_(False)}
    return [env.step(reset_action(env)), *(env.step(act) for _ in range(3))]


def test_numbers_of_the_first_step_are_found_and_missing_ones_are_zero():
    env = make_env(Informer, 0)
    assert {key for key in env.obs_space if key.startswith("log/")} == LOGGED
    history = play(env)
    assert all(obs.keys() == env.obs_space.keys() for obs in history)
    assert all(obs[key].dtype == np.float32 and obs[key].shape == () for obs in history for key in LOGGED)
    assert [float(obs["log/height"]) for obs in history] == [0, 0.5, 1.0, 1.5]
    assert [float(obs["log/level"]) for obs in history] == [7, 0, 0, 0]
    assert [float(obs["log/energy/left"]) for obs in history] == [0, 3, 3, 3]


def test_a_number_that_turns_up_late_is_mentioned_once_with_the_remedy(caplog):
    _say_unlogged.cache_clear()  # other tests may have seen it too
    env = make_env(Informer, 0)
    with caplog.at_level(logging.WARNING):
        play(env)
        play(env)
    (message,) = [r.getMessage() for r in caplog.records if "success_of_informer" in r.getMessage()]
    assert "--env.gym.info success_of_informer" in message


def test_named_numbers_are_logged_and_nothing_is_probed():
    env = make_env(Informer, 0, {"gym": {"info": ("success_of_informer",)}})
    assert {key for key in env.obs_space if key.startswith("log/")} == {"log/success_of_informer"}
    assert [float(obs["log/success_of_informer"]) for obs in play(env)] == [0, 0, 0, 1]


def test_none_logs_nothing_and_says_nothing(caplog):
    env = make_env(Informer, 0, {"gym": {"info": ("none",)}})
    assert not [key for key in env.obs_space if key.startswith("log/")]
    play(env)
    assert not caplog.records


def test_the_probe_takes_a_legal_action_and_does_not_change_what_follows():
    inner = Informer()
    probe_info(inner, seed=3)
    assert inner.actions[0] in inner.action_space
    made = [make_env("gym_CartPole-v1", 3, {"gym": {"info": info}}) for info in (("auto",), ("none",))]
    probed, plain = (env.step(reset_action(env))["vector"] for env in made)
    np.testing.assert_array_equal(probed, plain)
    assert isinstance(made[0], FromGymnasium)
