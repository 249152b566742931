"""Gymnasium environments as ours: real ones, and a small one with every kind of space."""

import elements
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from dreamfleet.agent.random import RandomAgent
from dreamfleet.envs import check_spaces, reset_action
from dreamfleet.envs.gymnasium import FromGymnasium
from dreamfleet.errors import EnvError


class Mixed(gymnasium.Env):
    """Shows and takes whatever its spaces hold; `ends` says how each step ends."""

    def __init__(self, observation_space, action_space, ends=()):
        self.observation_space = observation_space
        self.action_space = action_space
        self.ends = list(ends)
        self.shown, self.taken, self.seeds = [], [], []
        self.is_closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self._show(), {}

    def step(self, action):
        self.taken.append(action)
        terminated, truncated = self.ends.pop(0) if self.ends else (False, False)
        return self._show(), 0.5, terminated, truncated, {}

    def close(self):
        self.is_closed = True

    def _show(self):
        self.shown.append(self.observation_space.sample())
        return self.shown[-1]


OBS = spaces.Dict(
    {
        "camera": spaces.Dict({"image": spaces.Box(0, 255, (4, 4, 3), np.uint8), "lens": spaces.Discrete(3, start=-1)}),
        "speed": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        "buttons": spaces.MultiBinary(3),
        "cards": spaces.MultiDiscrete([3, 5], start=[1, -4]),
        "coins": spaces.MultiDiscrete([4, 4], start=[2, 0]),
        "level": spaces.Box(-128, 127, (2,), np.int8),
        "pair": spaces.Tuple([spaces.Discrete(2), spaces.Dict({"far": spaces.Box(0, 1, (2,), np.float64)})]),
        "board": spaces.Box(0, 2, (3, 3), np.uint8),
    }
)
ACT = spaces.Dict(
    {
        "arm": spaces.Dict({"grip": spaces.Discrete(4, start=2), "move": spaces.Box(-1, 1, (2,), np.float32)}),
        "a/b": spaces.MultiDiscrete([2, 6], start=[10, 20]),
        "keys": spaces.MultiBinary(2),
        "dial": spaces.Box(0, 3, (), np.uint8),
        "feet": spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([5, 5])]),
    }
)


def random_actions(env: FromGymnasium, count: int):
    agent = RandomAgent(env.obs_space, env.act_space, elements.Config(seed=0))
    for _ in range(count):
        _, acts, _ = agent.policy((), {"is_first": np.zeros(1, bool)})
        yield {**{k: v[0] for k, v in acts.items()}, "reset": np.bool_(False)}


def test_nested_and_hybrid_spaces_are_flattened():
    env = FromGymnasium(Mixed(OBS, ACT))
    check_spaces(env)
    obs = {k: (s.dtype.name, s.shape) for k, s in env.obs_space.items()}
    assert {k: v for k, v in obs.items() if k not in ("reward", "is_first", "is_last", "is_terminal")} == {
        "camera/image": ("uint8", (4, 4, 3)),
        "camera/lens": ("int32", ()),
        "speed": ("float32", (2,)),
        "buttons": ("int32", (3,)),
        "cards/0": ("int32", ()),
        "cards/1": ("int32", ()),
        "coins": ("int32", (2,)),
        "level": ("int32", (2,)),
        "pair/0": ("int32", ()),
        "pair/1/far": ("float32", (2,)),
        "board": ("int32", (3, 3)),
    }
    act = {k: (s.dtype.name, s.shape, s.low.tolist(), s.high.tolist()) for k, s in env.act_space.items()}
    assert act == {
        "arm/grip": ("int32", (), 0, 4),
        "arm/move": ("float32", (2,), [-1, -1], [1, 1]),
        "a/b/0": ("int32", (), 0, 2),
        "a/b/1": ("int32", (), 0, 6),
        "keys": ("int32", (2,), [0, 0], [2, 2]),
        "dial": ("uint8", (), 0, 4),
        "feet/0": ("int32", (), 0, 3),
        "feet/1": ("int32", (2,), [0, 0], [5, 5]),
        "reset": ("bool", (), False, True),
    }
    assert env.obs_space["level"].low.tolist() == [-128, -128]
    assert env.obs_space["level"].high.tolist() == [128, 128]


def test_observations_are_of_their_spaces_and_discrete_ones_begin_at_zero():
    inner = Mixed(OBS, ACT)
    env = FromGymnasium(inner, seed=0)
    obs = [env.step(reset_action(env)), *(env.step(action) for action in random_actions(env, 40))]
    for ours, theirs in zip(obs, inner.shown, strict=True):
        assert ours.keys() == env.obs_space.keys()
        for key, space in env.obs_space.items():
            value = np.asarray(ours[key])
            assert (value.dtype, value.shape) == (space.dtype, space.shape), key
            if value.dtype.kind in "iu" and key != "camera/image":
                assert (value >= space.low).all() and (value < space.high).all(), key
        np.testing.assert_array_equal(ours["camera/image"], theirs["camera"]["image"])
        np.testing.assert_array_equal(ours["level"], theirs["level"])
        assert ours["camera/lens"] == theirs["camera"]["lens"] + 1
        assert [ours["cards/0"], ours["cards/1"]] == (theirs["cards"] - [1, -4]).tolist()
        np.testing.assert_array_equal(ours["coins"], theirs["coins"] - [2, 0])
        assert ours["pair/0"] == theirs["pair"][0]
        np.testing.assert_array_equal(ours["pair/1/far"], theirs["pair"][1]["far"].astype(np.float32))
    assert {int(o["camera/lens"]) for o in obs} == {0, 1, 2}


def test_random_actions_arrive_as_members_of_the_gymnasium_space_and_cover_it():
    inner = Mixed(OBS, ACT)
    env = FromGymnasium(inner)
    env.step(reset_action(env))
    for action in random_actions(env, 60):
        env.step(action)
    assert len(inner.taken) == 60
    assert all(action in ACT for action in inner.taken)
    assert {int(action["arm"]["grip"]) for action in inner.taken} == {2, 3, 4, 5}
    assert {int(action["a/b"][1]) for action in inner.taken} == set(range(20, 26))
    assert {int(action["dial"]) for action in inner.taken} == {0, 1, 2, 3}
    assert {int(action["feet"][0]) for action in inner.taken} == {0, 1, 2}


def test_a_lone_tuple_gets_names_with_numbers():
    inner = Mixed(
        spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,))]),
        spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 3])]),
    )
    env = FromGymnasium(inner)
    assert {"obs/0", "obs/1"} <= env.obs_space.keys()
    assert env.act_space.keys() == {"action/0", "action/1/0", "action/1/1", "reset"}
    for action in [reset_action(env), *random_actions(env, 10)]:
        assert env.step(action).keys() == env.obs_space.keys()
    assert all(action in inner.action_space for action in inner.taken)


def test_numbers_that_are_too_wide_are_brought_to_the_nearest_that_fits():
    inner = Mixed(spaces.Box(-(2**40), 2**40, (2,), np.int64), spaces.Discrete(2))
    inner._show = lambda: np.array([2**40, -(2**35)])
    obs = FromGymnasium(inner).step({"reset": True})["vector"]
    assert obs.dtype == np.int32 and obs.tolist() == [2**31 - 1, -(2**31)]


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), "image"),
        (spaces.Box(0, 255, (8,), np.uint8), "vector"),
        (spaces.Box(-1, 1, (3,), np.float32), "vector"),
        (spaces.Discrete(5), "vector"),
    ],
)
def test_a_lone_space_gets_a_name(space, name):
    env = FromGymnasium(Mixed(space, spaces.Discrete(2)))
    assert env.obs_space.keys() - {"reward", "is_first", "is_last", "is_terminal"} == {name}
    assert env.act_space.keys() == {"action", "reset"}
    assert env.step(reset_action(env))[name].shape == space.shape


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64])
def test_the_largest_value_of_an_integer_type_is_within_its_space(dtype):
    info = np.iinfo(dtype)
    space = FromGymnasium(Mixed(spaces.Discrete(2), spaces.Box(info.min, info.max, (1,), dtype))).act_space["action"]
    assert (space.low < space.high).all()
    assert space.high[0] == min(info.max, 2**31 - 1) + 1


def test_ends_by_death_and_by_time_are_told_apart_and_the_next_step_begins_anew():
    env = FromGymnasium(
        Mixed(spaces.Discrete(3), spaces.Discrete(2), ends=[(True, False), (False, True), (True, True)])
    )
    act = {"action": np.int32(1), "reset": np.bool_(False)}
    flags = []
    for _ in range(7):
        obs = env.step(act)
        flags.append((obs["is_first"], obs["is_last"], obs["is_terminal"], float(obs["reward"])))
    first = (True, False, False, 0.0)
    assert flags == [
        first,
        (False, True, True, 0.5),
        first,
        (False, True, False, 0.5),
        first,
        (False, True, True, 0.5),
        first,
    ]


def test_reset_starts_an_episode_in_the_middle_of_one():
    inner = Mixed(spaces.Discrete(3), spaces.Discrete(2))
    env = FromGymnasium(inner)
    act = {"action": np.int32(0), "reset": np.bool_(False)}
    env.step(act)
    env.step(act)
    assert env.step({**act, "reset": np.bool_(True)})["is_first"]
    assert len(inner.taken) == 1


def test_the_seed_is_given_once_and_later_episodes_continue_from_it():
    inner = Mixed(spaces.Discrete(3), spaces.Discrete(2))
    env = FromGymnasium(inner, seed=7)
    for _ in range(3):
        env.step(reset_action(env))
    assert inner.seeds == [7, None, None]


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Sequence(spaces.Discrete(2))])
def test_a_space_that_is_no_array_is_refused_by_name(space):
    with pytest.raises(EnvError, match=f"'vector' has the space {type(space).__name__}"):
        FromGymnasium(Mixed(space, spaces.Discrete(2)))
    with pytest.raises(EnvError, match=f"'arm/note' has the space {type(space).__name__}"):
        FromGymnasium(Mixed(spaces.Discrete(2), spaces.Dict({"arm": spaces.Dict({"note": space})})))


@pytest.mark.parametrize(("obs", "act", "name"), [("reward", "go", "reward"), ("x", "reset", "reset")])
def test_a_name_that_is_ours_is_refused(obs, act, name):
    with pytest.raises(EnvError, match=rf"\['{name}'\]"):
        FromGymnasium(Mixed(spaces.Dict({obs: spaces.Discrete(2)}), spaces.Dict({act: spaces.Discrete(2)})))


def test_close_reaches_the_environment():
    inner = Mixed(spaces.Discrete(3), spaces.Discrete(2))
    FromGymnasium(inner).close()
    assert inner.is_closed


def play_cartpole(seed: int, steps: int = 300) -> list[dict]:
    env = FromGymnasium(gymnasium.make("CartPole-v1"), seed)
    try:
        return [env.step(reset_action(env)), *(env.step(action) for action in random_actions(env, steps))]
    finally:
        env.close()


def test_cartpole_runs_and_is_the_same_for_a_seed():
    first, again, other = play_cartpole(3), play_cartpole(3), play_cartpole(4)
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one["vector"], two["vector"])
    assert (first[0]["vector"] != other[0]["vector"]).any()
    assert first[0]["vector"].shape == (4,) and first[0]["vector"].dtype == np.float32
    lasts = [obs["is_last"] for obs in first]
    firsts = [obs["is_first"] for obs in first]
    assert sum(lasts) > 3
    assert firsts[1:] == lasts[:-1]
    assert all(obs["is_terminal"] == obs["is_last"] for obs in first)
    assert all(obs["reward"] == (0.0 if obs["is_first"] else 1.0) for obs in first)


def test_cartpole_that_reaches_its_time_limit_is_not_terminal():
    env = FromGymnasium(gymnasium.make("CartPole-v1", max_episode_steps=5), seed=0)
    obs = [env.step({"action": np.int32(i % 2), "reset": np.bool_(False)}) for i in range(6)]
    env.close()
    assert obs[-1]["is_last"] and not obs[-1]["is_terminal"]
