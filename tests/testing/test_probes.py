"""The probes' known scores, played by scripted policies and by the random agent."""

import elements
import numpy as np
import pytest

from dreamfleet.agent.random import RandomAgent
from dreamfleet.envs import check_spaces, reset_action
from dreamfleet.testing import PROBES


def lit_half(first) -> int:
    return int(first["vector"].argmax() > 0)


def onestep(first, obs):
    return {"action": np.int32(lit_half(first))}


def delayed(first, obs):
    return {"action": np.int32(obs["vector"][0] == 0)}


def memory(first, obs):
    return {"action": np.int32(first["vector"][0] > 0)}


def continuous(first, obs):
    return {"action": obs["vector"][:-1].mean(keepdims=True) - np.float32(0.5)}


def hybrid(first, obs):
    cue = lit_half(first)
    return {"choice": np.int32(cue), "move": np.array([1.0 if cue else -1.0], np.float32)}


def image(first, obs):
    return {"action": np.int32(obs["image"][:, 32:].mean() > obs["image"][:, :32].mean())}


OPTIMAL = {"onestep": onestep, "delayed": delayed, "memory": memory, "continuous": continuous, "hybrid": hybrid}
OPTIMAL["image"] = image


def play(env, policy, episodes: int) -> list[float]:
    """Scores of whole episodes, with the contract checked on the way."""
    scores = []
    for _ in range(episodes):
        obs = first = env.step(reset_action(env))
        assert first["is_first"] and not first["is_last"] and first["reward"] == 0
        score = 0.0
        while not obs["is_last"]:
            obs = env.step({**policy(first, obs), "reset": np.bool_(False)})
            assert not obs["is_first"] and obs["is_terminal"] == obs["is_last"]
            for key, space in env.obs_space.items():
                assert np.asarray(obs[key]).shape == space.shape and np.asarray(obs[key]).dtype == space.dtype, key
            score += float(obs["reward"])
        scores.append(score)
    return scores


def random_policy(env):
    agent = RandomAgent(env.obs_space, env.act_space, elements.Config(seed=1))

    def policy(first, obs):
        _, acts, _ = agent.policy((), {"is_first": np.zeros(1, bool)})
        return {k: v[0] for k, v in acts.items()}

    return policy


def test_every_probe_has_a_known_best_policy():
    assert OPTIMAL.keys() == PROBES.keys()


@pytest.mark.parametrize("name", PROBES)
def test_the_best_policy_gets_the_best_score_every_time(name):
    env = PROBES[name](seed=0)
    check_spaces(env)
    assert play(env, OPTIMAL[name], 50) == pytest.approx([env.best_score] * 50, abs=1e-5)


@pytest.mark.parametrize("name", PROBES)
def test_a_random_policy_gets_the_random_score_on_average(name):
    env = PROBES[name](seed=0)
    scores = play(env, random_policy(env), 1000)
    assert np.mean(scores) == pytest.approx(env.random_score, abs=0.05)  # three standard errors


@pytest.mark.parametrize("name", sorted(PROBES.keys() - {"delayed"}))
def test_cues_are_the_same_for_a_seed(name):
    key = next(iter(PROBES[name].spaces))
    shown = []
    for seed in (5, 5, 6):
        env = PROBES[name](seed=seed)
        shown.append(np.stack([env.step(reset_action(env))[key] for _ in range(30)]))
    np.testing.assert_array_equal(shown[0], shown[1])
    assert (shown[0] != shown[2]).any()


def test_memory_needs_memory():
    """Whoever sees only the last observation is paid half of the time."""
    env = PROBES["memory"](seed=0)
    scores = play(env, lambda first, obs: {"action": np.int32(obs["vector"][0] > 0)}, 500)
    assert np.mean(scores) == pytest.approx(0.5, abs=0.1)


def test_the_random_agent_covers_every_kind_of_action_and_continues_from_a_checkpoint():
    spaces = {
        "flag": elements.Space(bool),
        "choice": elements.Space(np.int32, (2,), 0, [2, 5]),
        "move": elements.Space(np.float32, (2,), [-1, 0], [1, 10]),
        "free": elements.Space(np.float32, (3,)),
        "half": elements.Space(np.float32, (), 0, np.inf),
        "reset": elements.Space(bool),
    }
    agent = RandomAgent({}, spaces, elements.Config(seed=0))
    obs = {"is_first": np.zeros(400, bool)}
    _, acts, outs = agent.policy((), obs)
    assert acts.keys() == spaces.keys() - {"reset"} and outs == {}
    for key, value in acts.items():
        assert value.shape == (400, *spaces[key].shape) and value.dtype == spaces[key].dtype
        assert (value >= spaces[key].low).all() and (value <= spaces[key].high).all()
    assert set(acts["flag"].tolist()) == {False, True}
    assert set(acts["choice"][:, 0].tolist()) == {0, 1} and set(acts["choice"][:, 1].tolist()) == set(range(5))
    assert acts["move"][:, 1].max() > 9 and acts["move"][:, 0].min() < -0.9
    assert acts["free"].std() == pytest.approx(1.0, abs=0.1)
    restored = RandomAgent({}, spaces, elements.Config(seed=99))
    restored.load(agent.save())
    _, expected, _ = agent.policy((), obs)
    _, actual, _ = restored.policy((), obs)
    for key in expected:
        np.testing.assert_array_equal(actual[key], expected[key])
