"""Environments of any kind, made to keep the contract and to fit the networks."""

import logging

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from dreamfleet.envs import as_env, make_env, reset_action
from dreamfleet.envs.adapt import _say_resized
from dreamfleet.envs.dummy import Dummy
from dreamfleet.envs.wrappers import _say_turned
from dreamfleet.errors import EnvError
from dreamfleet.testing import ContinuousTarget


class Shows(gymnasium.Env):
    """Shows random values of a space."""

    def __init__(self, observation_space, action_space=None):
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.taken = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.taken.append(action)
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.fixture(autouse=True)
def said_nothing_yet():
    for say in (_say_resized, _say_turned):
        say.cache_clear()


def image_box(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("given", "expected", "said"),
    [
        ((64, 64, 3), (64, 64, 3), []),
        ((96, 128, 3), (96, 128, 3), []),
        ((84, 84, 4), (64, 64, 4), ["resized to 64 x 64"]),
        ((32, 32, 3), (64, 64, 3), ["resized to 64 x 64"]),
        ((210, 160, 3), (64, 64, 3), ["resized to 64 x 64"]),
        ((64, 64), (64, 64, 1), []),
        ((3, 64, 64), (64, 64, 3), ["'image' of shape (3, 64, 64) is taken as a channel-first image"]),
        ((4, 84, 84), (64, 64, 4), ["channel-first", "'image' (84, 84, 4)"]),
    ],
)
def test_images_are_made_usable_and_that_is_said_once(given, expected, said, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            env = as_env(Shows(image_box(*given)), seed=0)
            image = env.step(reset_action(env))["image"]
            assert env.obs_space["image"].shape == image.shape == expected and image.dtype == np.uint8
    assert len(caplog.records) == len(said)
    assert all(part in record.getMessage() for part, record in zip(said, caplog.records, strict=True))


def test_the_side_of_resized_images_can_be_chosen_but_usable_ones_stay():
    options = {"gym": {"size": 96}}
    assert make_env(lambda: Shows(image_box(84, 84, 3)), 0, options).obs_space["image"].shape == (96, 96, 3)
    assert make_env(lambda: Shows(image_box(64, 64, 3)), 0, options).obs_space["image"].shape == (64, 64, 3)


def test_images_of_several_sizes_get_one():
    env = as_env(Shows(spaces.Dict(far=image_box(96, 96, 3), near=image_box(64, 64, 1))))
    assert {k: env.obs_space[k].shape for k in ("far", "near")} == {"far": (64, 64, 3), "near": (64, 64, 1)}


def test_bytes_that_are_no_colours_are_no_image():
    env = as_env(Shows(spaces.Box(0, 5, (84, 84, 3), np.uint8)))
    assert env.obs_space["vector"].dtype == np.int32 and env.obs_space["vector"].shape == (84, 84, 3)


def test_continuous_actions_are_in_one_range_outside_and_in_their_own_inside():
    inner = Shows(spaces.Discrete(2), spaces.Box(np.float32([-3, 0]), np.float32([1, np.inf]), dtype=np.float32))
    env = as_env(inner)
    assert (env.act_space["action"].low == -1).all() and (env.act_space["action"].high == 1).all()
    env.step(reset_action(env))
    env.step({"action": np.float32([9, -9]), "reset": False})
    env.step({"action": np.float32([-1, 0.5]), "reset": False})
    assert [action.tolist() for action in inner.taken[-2:]] == [[1, -1], [-3, 0.5]]


def test_environments_of_ours_are_kept_when_given_and_fitted_when_named():
    ours = ContinuousTarget()
    assert as_env(ours) is ours
    assert make_env("dreamfleet.testing:ContinuousTarget", 0).act_space["action"].high == 1
    fitted = make_env(lambda: Dummy("image", size=40), 0)
    assert fitted.obs_space["image"].shape == (64, 64, 3)


def test_repeat_and_length_hold_for_callables():
    env = make_env(lambda: Dummy(length=100), 0, {"gym": {"repeat": 3, "length": 2}})
    act = {"action": np.int32(0), "reset": np.bool_(False)}
    history = [env.step(reset_action(env)), *(env.step(act) for _ in range(3))]
    assert [float(obs["reward"]) for obs in history] == [0, 3, 3, 0]
    assert [bool(obs["is_last"]) for obs in history] == [False, False, True, False]
    assert history[3]["is_first"]


def test_what_is_no_environment_is_refused():
    with pytest.raises(EnvError, match="dict is not an environment: it has neither obs_space"):
        as_env({})
