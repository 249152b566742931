"""The counting environment and agent see every kind of mistake that can be made between them."""

import itertools

import numpy as np
import pytest

from dreamfleet.envs import reset_action
from dreamfleet.replay import Store, consecutive_batches
from dreamfleet.testing import CountingAgent, CountingEnv, check_sequences, expected_action

LENGTH = 3 * 4 + 1


def play(env: CountingEnv, agent: CountingAgent, steps: int) -> list[dict]:
    """The transitions of an environment that the agent acts in."""
    carry, action, rows = agent.init_policy(1), reset_action(env), []
    for _ in range(steps):
        obs = {k: np.asarray(v)[None] for k, v in env.step(action).items() if not k.startswith("log/")}
        carry, acts, outs = agent.policy(carry, obs)
        rows.append({k: v[0] for k, v in {**obs, **acts, **outs}.items()})
        action = {"action": acts["action"][0], "reset": obs["is_last"][0]}
    return rows


@pytest.fixture
def replay() -> Store:
    replay = Store(LENGTH, 1000)
    for index in range(2):
        for row in play(CountingEnv(index, length=6, image_size=4), CountingAgent(), 60):
            replay.add(row, index)
    return replay


@pytest.fixture
def data(replay) -> dict:
    """Two sequences of environment 0 whose first episode ends at row 6."""
    data = replay.sample(500)
    is_wanted = (data["env"][:, 0] == 0) & (data["step"][:, 0] == 0)
    return {k: v[is_wanted][:2].copy() for k, v in data.items()}


@pytest.mark.parametrize("kind", ["array", "list", "none"])
def test_acting_and_learning_without_a_mistake_raises_nothing(kind, replay):
    agent = CountingAgent(kind)
    play(CountingEnv(3, length=5), agent, 30)
    carry = agent.init_train(8)
    for batch in itertools.islice(
        consecutive_batches(replay, "train", batch_size=8, length=4, consec=3, context=1), 12
    ):
        carry, outs, metrics = agent.train(carry, batch)
        assert outs["replay"].keys() == {"stepid", "echo"} and metrics["updates"] == agent.trained
        agent.report(agent.init_report(8), batch)
    assert agent.trained == 12 and agent.policy_rows == 30 and agent.policy_shapes == {1}
    restored = CountingAgent()
    restored.load(agent.save())
    assert restored.trained == 12


def test_the_sample_that_is_spoiled_below_is_right_as_it_is(data):
    assert data["step"].tolist() == [[*range(7), *range(6)]] * 2
    check_sequences(data)


def spoil_gap(data):
    data["step"][1, 4:7] += 1


def spoil_missing_row(data):
    for key, value in data.items():
        data[key] = np.concatenate([value[:, :3], value[:, 4:]], 1)


def spoil_order(data):
    for value in data.values():
        value[0, [2, 3]] = value[0, [3, 2]]


def spoil_environment(data):
    data["env"][0, 8:] = 1
    data["action"][0, 8:] = expected_action(1, data["step"][0, 8:])


def spoil_life(data):
    data["life"][0, 3:] += 1


def spoil_episode(data):
    data["episode"][0, 3:] += 1


def spoil_action(data):
    data["action"][1, 5] = (data["action"][1, 5] + 1) % 7


def spoil_action_shift(data):
    data["action"] = np.roll(data["action"], 1, 1)


def spoil_echo(data):
    data["echo"][0, 2] += 1


def spoil_is_last(data):
    data["is_last"][0, 6] = False


def spoil_early_last(data):
    data["is_last"][0, 2] = True


def spoil_is_first(data):
    data["is_first"][0, 7] = False


def spoil_second_first(data):
    data["is_first"][0, 3] = data["is_last"][0, 2] = True


def spoil_reward(data):
    data["reward"][0, 7] = 1.0


def spoil_image(data):
    data["image"][1, 3, 2, 2, 1] += 1


def spoil_step_id(data):
    data["stepid"][0, 4] = data["stepid"][0, 3]


SPOILERS = [fn for name, fn in list(globals().items()) if name.startswith("spoil_")]


@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda fn: fn.__name__)
def test_a_spoiled_sequence_is_seen_by_train_and_report(spoil, data):
    spoil(data)
    with pytest.raises(AssertionError):
        check_sequences(data)
    agent = CountingAgent()
    data["consec"] = np.zeros(data["step"].shape, np.int32)
    with pytest.raises(AssertionError):
        agent.train(agent.init_train(2), data)
    with pytest.raises(AssertionError):
        agent.report(agent.init_report(2), data)


def test_an_abandoned_episode_is_fine_once_it_has_a_last_row(replay):
    agent, env = CountingAgent(), CountingEnv(0, length=6)
    rows = play(env, agent, 3) + play(env, agent, 12)
    store = Store(LENGTH, 1000)
    for row in rows:
        store.add(row, 0)
    check_sequences(store.sample(50))


@pytest.mark.parametrize("order", [[1], [0, 2], [0, 1, 1], [0, 1, 4]])
def test_chunks_out_of_order_are_seen(order, replay):
    batches = consecutive_batches(replay, "train", batch_size=8, length=4, consec=3, context=1)
    chunks = list(itertools.islice(batches, 6))
    agent = CountingAgent()
    carry = agent.init_train(8)
    *right, wrong = order
    for index in right:
        carry, _, _ = agent.train(carry, chunks[index])
    with pytest.raises(AssertionError, match=r"chunk"):
        agent.train(carry, chunks[wrong])


def test_rows_of_different_chunks_in_one_batch_are_seen(replay):
    batches = consecutive_batches(replay, "train", batch_size=8, length=4, consec=3, context=1)
    first, second = next(batches), next(batches)
    agent = CountingAgent()
    carry, _, _ = agent.train(agent.init_train(8), first)
    second["consec"][2, 1:] = 0
    with pytest.raises(AssertionError):
        agent.train(carry, second)


def make_obs(env: int, steps: list[int], episode: int = 0) -> dict:
    rows = len(steps)
    return {
        "env": np.full(rows, env, np.int32),
        "episode": np.full(rows, episode, np.int32),
        "step": np.array(steps, np.int32),
        "is_first": np.array(steps) == 0,
    }


@pytest.mark.parametrize("kind", ["array", "list"])
@pytest.mark.parametrize(
    "obs",
    [make_obs(0, [2]), make_obs(1, [1]), make_obs(0, [1], episode=1)],
    ids=["a step later", "another environment", "another episode"],
)
def test_a_carry_of_another_row_is_seen(kind, obs):
    agent = CountingAgent(kind)
    carry, _, _ = agent.policy(agent.init_policy(1), make_obs(0, [0]))
    agent.policy(carry, make_obs(0, [1]))
    with pytest.raises(AssertionError, match=r"carries .* came with observations"):
        agent.policy(carry, obs)


@pytest.mark.parametrize("kind", ["array", "list"])
def test_an_initial_carry_in_the_middle_of_an_episode_is_seen(kind):
    agent = CountingAgent(kind)
    with pytest.raises(AssertionError, match="came with"):
        agent.policy(agent.init_policy(1), make_obs(0, [1]))


def test_carries_of_the_wrong_kind_or_number_are_seen():
    array, listed = CountingAgent("array"), CountingAgent("list")
    with pytest.raises(AssertionError):
        array.policy(listed.init_policy(1), make_obs(0, [0]))
    with pytest.raises(AssertionError):
        listed.policy(array.init_policy(1), make_obs(0, [0]))
    with pytest.raises(AssertionError):
        array.policy(array.init_policy(2), make_obs(0, [0]))


@pytest.mark.parametrize("key", ["log/double", "envid", "is_eval", "reset"])
def test_keys_that_are_not_for_the_agent_are_seen(key):
    agent = CountingAgent()
    with pytest.raises(AssertionError, match=key):
        agent.policy(agent.init_policy(1), {**make_obs(0, [0]), key: np.zeros(1)})


def test_an_unknown_mode_is_seen():
    agent = CountingAgent()
    with pytest.raises(AssertionError, match="report"):
        agent.policy(agent.init_policy(1), make_obs(0, [0]), "report")


def test_the_environment_sees_an_action_that_is_not_its_own():
    env = CountingEnv(2)
    env.step(reset_action(env))
    env.step({"action": expected_action(2, 0), "reset": False})
    with pytest.raises(AssertionError):
        env.step({"action": expected_action(2, 0), "reset": False})


def test_two_lives_of_an_environment_differ():
    assert CountingEnv(0).step({"reset": True})["life"] != CountingEnv(0).step({"reset": True})["life"]


def test_an_agent_without_updates_sends_none(replay):
    agent = CountingAgent(with_updates=False)
    batch = next(consecutive_batches(replay, "train", batch_size=8, length=4, consec=3, context=1))
    _, outs, _ = agent.train(agent.init_train(8), batch)
    assert outs == {}
