"""Each wrapper alone, around environments that count what is done to them."""

import elements
import numpy as np
import pytest

from dreamfleet.envs import check_spaces, reset_action
from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.envs.dummy import Dummy
from dreamfleet.envs.wrappers import ActionRepeat, ChannelLast, ClipAction, NormalizeAction, ResizeImage, TimeLimit


class Recorder:
    """Keeps the actions that reach it; episodes have `length` steps, each with its number as reward."""

    def __init__(self, length: int = 10, **act_space: elements.Space):
        self.obs_space = {"count": elements.Space(np.int32), **STEP_SPACES}
        self.act_space = {**(act_space or {"action": elements.Space(np.int32, (), 0, 3)}), "reset": RESET_SPACE}
        self.length = length
        self.taken = []
        self.count = 0
        self.done = True
        self.is_closed = False

    def step(self, action):
        self.taken.append(action)
        is_first = self.done or bool(action["reset"])
        self.count = 0 if is_first else self.count + 1
        self.done = self.count >= self.length
        return {
            "count": np.int32(self.count),
            "reward": np.float32(self.count),
            "is_first": is_first,
            "is_last": self.done,
            "is_terminal": self.done,
        }

    def close(self):
        self.is_closed = True


def play(env, steps: int, **action) -> list[dict]:
    """Steps as the actor does: with a reset after the last step of an episode."""
    action = action or {"action": np.int32(1)}
    history = [env.step(reset_action(env))]
    while len(history) < steps:
        history.append(env.step({**action, "reset": np.bool_(history[-1]["is_last"])}))
    return history


def flags(history: list[dict]) -> list[str]:
    """`F` for the first step of an episode, `T` for a terminal last one, `L` for another last one, else `.`."""
    signs = []
    for obs in history:
        assert not (obs["is_first"] and obs["is_last"])
        last = "T" if obs["is_terminal"] else "L"
        signs.append("F" if obs["is_first"] else last if obs["is_last"] else ".")
    return signs


@pytest.mark.parametrize(
    "wrap", [NormalizeAction, ClipAction, ChannelLast, lambda e: ActionRepeat(e, 2), lambda e: TimeLimit(e, 3)]
)
def test_wrappers_keep_the_contract_and_close(wrap):
    inner = Recorder()
    env = wrap(inner)
    check_spaces(env)
    obs = env.step(reset_action(env))
    assert obs.keys() == env.obs_space.keys() and obs["is_first"]
    assert env.num_envs is None
    env.close()
    assert inner.is_closed


def test_actions_are_scaled_to_their_bounds_and_left_alone_where_there_are_none():
    low, high = np.array([-2.0, 0.0, -np.inf, 0.0]), np.array([4.0, 1.0, np.inf, np.inf])
    inner = Recorder(move=elements.Space(np.float32, (4,), low, high), jump=elements.Space(np.int32, (), 0, 2))
    env = NormalizeAction(inner)
    assert (env.act_space["move"].low == -1).all() and (env.act_space["move"].high == 1).all()
    assert env.act_space["jump"] is inner.act_space["jump"]
    for given, expected in [(-1, [-2, 0, -1, -1]), (0, [1, 0.5, 0, 0]), (1, [4, 1, 1, 1])]:
        action = {"move": np.full(4, given, np.float32), "jump": np.int32(1), "reset": False}
        env.step(action)
        assert inner.taken[-1]["move"].tolist() == expected and inner.taken[-1]["move"].dtype == np.float32
        assert inner.taken[-1]["jump"] == 1 and (action["move"] == given).all(), "the caller's action is not changed"


def test_actions_outside_their_bounds_are_clipped():
    inner = Recorder(move=elements.Space(np.float32, (3,), -1, 1), jump=elements.Space(np.int32, (), 0, 2))
    ClipAction(inner).step({"move": np.array([-3, 0.5, 7], np.float32), "jump": np.int32(1), "reset": False})
    assert inner.taken[-1]["move"].tolist() == [-1, 0.5, 1] and inner.taken[-1]["jump"] == 1


def test_actions_are_repeated_in_every_episode_and_their_rewards_summed():
    inner = Recorder(length=10)
    history = play(ActionRepeat(inner, 4), 8)
    # 1+2+3+4, 5+6+7+8, and the last two of the episode alone; the second episode is as the first.
    assert [int(obs["reward"]) for obs in history] == [0, 10, 26, 19, 0, 10, 26, 19]
    assert [int(obs["count"]) for obs in history] == [0, 4, 8, 10, 0, 4, 8, 10]
    assert flags(history) == ["F", ".", ".", "T", "F", ".", ".", "T"]
    assert len(inner.taken) == 2 * 11


def test_a_repeated_action_does_not_reach_into_a_new_episode():
    inner = Recorder(length=3)
    env = ActionRepeat(inner, 4)
    obs = env.step({"action": np.int32(0), "reset": np.bool_(False)})
    assert obs["is_first"] and len(inner.taken) == 1, "the very first step begins an episode, whatever the action"
    assert int(env.step({"action": np.int32(0), "reset": np.bool_(False)})["count"]) == 3
    obs = env.step({"action": np.int32(2), "reset": np.bool_(True)})
    assert obs["is_first"] and obs["count"] == 0 and obs["reward"] == 0


def test_episodes_end_at_the_time_limit_which_is_not_terminal():
    history = play(TimeLimit(Recorder(length=10), 3), 9)
    assert flags(history) == ["F", ".", ".", "L", "F", ".", ".", "L", "F"]


def test_the_limit_starts_anew_after_a_reset_and_leaves_other_ends_alone():
    env = TimeLimit(Recorder(length=3), 5)
    assert flags(play(env, 5)) == ["F", ".", ".", "T", "F"]
    env.step({"action": 0, "reset": False})
    assert flags(play(env, 4)) == ["F", ".", ".", "T"]


def test_a_limited_environment_begins_anew_even_without_a_reset_action():
    env = TimeLimit(Recorder(length=10), 2)
    history = [env.step({"action": 0, "reset": False}) for _ in range(5)]
    assert flags(history) == ["F", ".", "L", "F", "."]


def test_an_end_at_the_limit_may_be_terminal_too():
    assert flags(play(TimeLimit(Recorder(length=3), 3), 4)) == ["F", ".", ".", "T"]


def test_images_are_resized_in_space_and_step():
    env = ResizeImage(Dummy("image", size=80), 64, 48)
    assert env.obs_space["image"].shape == (64, 48, 3)
    image = env.step(reset_action(env))["image"]
    assert image.shape == (64, 48, 3) and image.dtype == np.uint8


@pytest.mark.parametrize(("shape", "expected"), [((3, 6, 5), (6, 5, 3)), ((6, 5), (6, 5, 1)), ((6, 5, 3), (6, 5, 3))])
def test_images_get_their_channels_last(shape, expected):
    inner = Dummy("image")
    inner.obs_space["image"] = elements.Space(np.uint8, shape)
    content = inner._content = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    env = ChannelLast(inner)
    image = env.step(reset_action(env))["image"]
    assert env.obs_space["image"].shape == image.shape == expected
    content.flat[0] = 0  # where the environment counts
    expected_image = content.transpose(1, 2, 0) if shape == (3, 6, 5) else content.reshape(expected)
    np.testing.assert_array_equal(image, expected_image)
