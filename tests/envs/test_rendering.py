"""Pictures for people: where they come from, and that the agent does not get them."""

import gymnasium
import numpy as np
import pytest

from dreamfleet.envs import check_spaces, make_env, reset_action
from dreamfleet.envs.dummy import Dummy
from dreamfleet.envs.rendering import FRAME, WithFrame
from dreamfleet.errors import ConfigError


class Drawn(gymnasium.Env):
    """Draws its step number into the picture."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def render(self):
        return np.full((20, 30, 3), self.count, np.uint8)


def steps(env, count: int) -> list[dict]:
    action = {**reset_action(env), "reset": np.bool_(False)}
    return [env.step(reset_action(env)), *(env.step(action) for _ in range(count - 1))]


def test_what_gymnasium_renders():
    env = WithFrame(make_env(Drawn, 0, {"gym": {"length": 5, "repeat": 2}}, render=True), "mine:Drawn")
    check_spaces(env)
    assert env.obs_space[FRAME].shape == (20, 30, 3)
    assert [obs[FRAME].max() for obs in steps(env, 4)] == [0, 2, 4, 6], "through every wrapper, after each step"


def test_a_gymnasium_id():
    env = WithFrame(make_env("gym_CartPole-v1", 0, render=True), "gym_CartPole-v1")
    first, second = steps(env, 2)
    assert first[FRAME].shape == (400, 600, 3) and (first[FRAME] != second[FRAME]).any()
    env.close()


def test_images_that_the_agent_observes():
    env = WithFrame(make_env("dummy_image", 0, {"dummy": {"size": 16}}), "dummy_image")
    (obs,) = steps(env, 1)
    assert (obs[FRAME] == obs["image"]).all()


def test_gray_images_become_colored():
    class Gray(Dummy):
        def __init__(self):
            super().__init__("image", size=16)
            self.obs_space = {**self.obs_space, "image": type(self.obs_space["image"])(np.uint8, (16, 16, 1))}

        def step(self, action):
            obs = super().step(action)
            return {**obs, "image": obs["image"][..., :1]}

    (obs,) = steps(WithFrame(Gray(), "mine:Gray"), 1)
    assert obs[FRAME].shape == (16, 16, 3) and (obs[FRAME] == obs["image"]).all()


def test_an_atari_screen():
    env = WithFrame(make_env("atari_pong", 0), "atari_pong")
    assert env.obs_space[FRAME].shape == (210, 160, 3) and env.obs_space["image"].shape == (96, 96, 1)


def test_nothing_to_show():
    with pytest.raises(ConfigError, match="task='mine:Drawn' neither renders images nor observes any"):
        WithFrame(make_env(Drawn, 0), "mine:Drawn")

    class Fails(Drawn):
        def render(self):
            raise RuntimeError("no display")

    with pytest.raises(ConfigError, match=r"neither renders images \(no display\) nor observes any"):
        WithFrame(make_env(Fails, 0, render=True), "mine:Fails")


def test_several_environments_in_one():
    def make():
        return gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)

    with pytest.raises(ConfigError, match="is a vector environment"):
        WithFrame(make_env(make, 0), "mine:make")
