"""Gymnasium's vector environments as K environments of a worker."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from dreamfleet.envs import EnvGroup, as_env, check_spaces, make_env
from dreamfleet.errors import ConfigError, EnvError


class Counter(gymnasium.Env):
    """Episodes of `length` steps that show their step and the last action, as numbers in a nested space."""

    observation_space = spaces.Dict(step=spaces.Discrete(50, start=5), image=spaces.Box(0, 255, (8, 8), np.uint8))
    action_space = spaces.Tuple([spaces.MultiDiscrete([2, 3], start=[1, 1]), spaces.Box(-2, 2, (1,))])

    def __init__(self, length: int, is_terminal: bool = True):
        self.length, self.is_terminal = length, is_terminal
        self.steps = 0
        self.taken = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action):
        assert action in self.action_space, action
        self.steps += 1
        done = self.steps >= self.length
        info = {"twice": 2.0 * self.steps, "pair": float(action[0][1])}
        return self._show(), float(action[1][0]), done and self.is_terminal, done and not self.is_terminal, info

    def _show(self):
        return {"step": 5 + self.steps, "image": np.full((8, 8), self.steps, np.uint8)}


def make_counters(lengths=(2, 3, 4)) -> SyncVectorEnv:
    return SyncVectorEnv([functools.partial(Counter, n, n != 3) for n in lengths])


def make_group(make, ids) -> tuple[EnvGroup, dict[str, np.ndarray]]:
    group = EnvGroup(lambda _: make(), ids)
    return group, group.reset_actions()


def act(group: EnvGroup, obs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    acts = {k: v.copy() for k, v in group.reset_actions().items()}
    acts["action/0/1"][:] = np.arange(len(obs["reward"])) % 3
    acts["action/1"][:] = 0.5
    return {**acts, "reset": obs["is_last"].copy()}


def play(group: EnvGroup, acts: dict[str, np.ndarray], steps: int) -> list[dict[str, np.ndarray]]:
    history = []
    for _ in range(steps):
        obs = {k: v.copy() for k, v in group.step(acts).items()}
        history.append(obs)
        acts = act(group, obs)
    return history


def test_spaces_are_those_of_one_environment_and_are_made_to_fit():
    env = as_env(make_counters())
    check_spaces(env)
    assert env.num_envs == 3
    assert env.obs_space["image"].shape == (64, 64, 1)
    assert env.act_space["action/1"].high == 1, "scaled from 2"
    assert env.act_space.keys() == {"action/0/0", "action/0/1", "action/1", "reset"}
    assert {"log/twice", "log/pair"} <= env.obs_space.keys()


def test_episodes_of_all_environments_are_told_apart():
    group, acts = make_group(make_counters, [0, 1, 2])
    history = play(group, acts, 9)
    steps = np.stack([obs["step"] for obs in history], 1)
    assert steps.tolist() == [
        [0, 1, 2, 0, 1, 2, 0, 1, 2],
        [0, 1, 2, 3, 0, 1, 2, 3, 0],
        [0, 1, 2, 3, 4, 0, 1, 2, 3],
    ]
    for obs in history:
        assert (obs["is_first"] == (obs["step"] == 0)).all()
        assert (obs["is_last"] == (obs["step"] == [2, 3, 4])).all()
        assert (obs["is_terminal"] == (obs["is_last"] & [True, False, True])).all()
        assert (obs["reward"] == np.where(obs["is_first"], 0, 1.0)).all()
        assert (obs["image"][:, 3, 3, 0] == obs["step"]).all()
        assert (obs["log/twice"] == 2 * obs["step"]).all()
        assert (obs["log/pair"] == np.where(obs["is_first"], 0, [1, 2, 3])).all()
    group.close()


def test_a_worker_may_have_several_of_them():
    group, acts = make_group(make_counters, [10, 11, 12, 13, 14, 15])
    history = play(group, acts, 4)
    assert history[3]["step"].tolist() == [0, 3, 3, 0, 3, 3]
    group.close()


@pytest.mark.parametrize("ids", [[0], [0, 1, 2, 3]])
def test_a_worker_of_another_size_is_refused_with_the_remedy(ids):
    with pytest.raises(ConfigError, match=r"run.envs_per_worker=\d is not a multiple of the 3 .*; set it to 3"):
        make_group(make_counters, ids)


def test_all_may_start_anew_in_the_middle_or_only_some():
    group, acts = make_group(lambda: make_counters((9, 9, 9)), [0, 1, 2])
    obs = play(group, acts, 4)[-1]
    acts = act(group, obs) | {"reset": np.array([False, True, False])}
    obs = group.step(acts)
    assert obs["step"].tolist() == [4, 0, 4]
    assert obs["is_first"].tolist() == [False, True, False] and obs["reward"].tolist() == [1, 0, 1]
    assert group.step(act(group, obs))["step"].tolist() == [5, 1, 5]
    assert group.step(group.reset_actions())["is_first"].all()
    group.close()


def test_an_episode_begins_by_itself_and_only_once():
    vector = make_counters((2, 9))
    group, acts = make_group(lambda: vector, [0, 1])
    resets = []
    reset = vector.envs[0].reset
    vector.envs[0].reset = lambda **options: resets.append(1) or reset(**options)
    obs = group.step(acts)
    for with_reset in (True, False):
        for expected in (1, 2, 0):
            obs = group.step(act(group, obs) | {"reset": obs["is_last"] & with_reset})
            assert obs["step"][0] == expected and obs["is_first"][0] == (expected == 0)
    assert len(resets) == 3
    group.close()


def test_seeds_differ_between_environments_and_are_repeatable():
    def first(seed: int) -> np.ndarray:
        group = EnvGroup(lambda _: make_env(make_cartpoles, seed), [0, 1])
        obs = group.step(group.reset_actions())["vector"].copy()
        group.close()
        return obs

    np.testing.assert_array_equal(first(4), first(4))
    assert (first(4) != first(5)).any() and (first(4)[0] != first(4)[1]).any()


def make_cartpoles():
    return gymnasium.make_vec("CartPole-v1", 2)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_modes_that_hide_the_end_of_an_episode_are_refused(mode):
    env = SyncVectorEnv([functools.partial(Counter, 3)], autoreset_mode=mode)
    with pytest.raises(EnvError, match=f"{mode.name}.*autoreset_mode=AutoresetMode.NEXT_STEP"):
        as_env(env)


def test_a_vector_that_raises_is_rebuilt_whole(caplog):
    lives = []

    def make():
        lives.append(make_counters((9, 9)))
        return lives[-1]

    group, acts = make_group(make, [7, 8])
    obs = play(group, acts, 3)[-1]
    lives[0].envs[1].length = "broken"
    obs = group.step(act(group, obs))
    assert obs["step"].tolist() == [0, 0] and obs["is_first"].all() and len(lives) == 2
    assert "environment 7 failed, rebuilding it" in caplog.text


def test_what_works_only_alone_is_refused():
    with pytest.raises(ConfigError, match=r"env.gym.repeat=2 is not supported for vector environments"):
        make_env(make_cartpoles, 0, {"gym": {"repeat": 2}})


@pytest.mark.distributed
def test_environments_in_processes_of_their_own():
    make = functools.partial(AsyncVectorEnv, [functools.partial(gymnasium.make, "CartPole-v1")] * 2)
    group, acts = make_group(make, [0, 1])
    try:
        obs = group.step(acts)
        for _ in range(30):
            obs = group.step({"action": np.array([0, 1], np.int32), "reset": obs["is_last"].copy()})
        assert obs["vector"].shape == (2, 4)
    finally:
        group.close()
