"""Playing episodes in several environments in one process."""

import elements
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from dreamfleet.agent.random import RandomAgent
from dreamfleet.envs import make_env
from dreamfleet.envs.dummy import Dummy
from dreamfleet.results.rollout import Rollout, play
from dreamfleet.testing import CountingAgent, CountingEnv


def make_random(make) -> RandomAgent:
    env = make(0)
    return RandomAgent(env.obs_space, env.act_space, elements.Config(seed=0))


def test_every_environment_plays_its_share():
    make = lambda index: Dummy("vector", length=[2, 20, 5][index])  # noqa: E731
    with Rollout(make_random(make), make, 3) as rollout:
        episodes = list(play(rollout, 7))
    assert sorted(e.score for e in episodes) == [2, 2, 2, 5, 5, 20, 20], "the short ones are not preferred"
    assert sorted(e.length for e in episodes) == [2, 2, 2, 5, 5, 20, 20]


def test_carries_and_actions_reach_the_right_environments():
    agent = CountingAgent()
    with Rollout(agent, CountingEnv, 4) as rollout:
        episodes = list(play(rollout, 12))
    assert len(episodes) == 12


def test_environments_that_come_several_at_once():
    def make(index):
        return make_env(lambda: SyncVectorEnv([make_cartpole] * 2), index)

    with Rollout(make_random(make), make, 3) as rollout:
        assert rollout.env_ids == [0, 1, 2, 3]
        assert len(list(play(rollout, 5))) == 5


def make_cartpole():
    import gymnasium

    return gymnasium.make("CartPole-v1")


def test_an_episode_that_broke_off_does_not_count(caplog):
    class Breaks(Dummy):
        broken = False

        def step(self, action):
            if self._count == 3 and not Breaks.broken:
                Breaks.broken = True
                raise ValueError("not today")
            return super().step(action)

    make = lambda index: Breaks("vector", length=6)  # noqa: E731
    with Rollout(make_random(make), make, 1) as rollout:
        assert [e.score for e in play(rollout, 2)] == [6, 6]
    assert Breaks.broken and "not today" in caplog.text


def test_the_eval_policy_acts():
    class Modes(RandomAgent):
        modes = []

        def policy(self, carry, obs, mode="train"):
            self.modes.append(mode)
            assert not any(key.startswith("log/") for key in obs)
            return super().policy(carry, obs, mode)

    env = Dummy("vector", length=2)
    agent = Modes(env.obs_space, env.act_space, elements.Config(seed=0))
    with Rollout(agent, lambda index: Dummy("vector", length=2), 1) as rollout:
        (episode,) = play(rollout, 1)
    assert set(Modes.modes) == {"eval"} and episode.is_eval
    assert episode.score == pytest.approx(np.float32(2))
