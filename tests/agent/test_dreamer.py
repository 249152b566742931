"""The agent methods: acting in both forms, training, reporting, saving and loading."""

import re

import jax
import numpy as np
import pytest

from dreamfleet.agent.contract import GrowingSlotAgent
from dreamfleet.agent.dreamer import Dreamer, devices
from dreamfleet.agent.dreamer.learning import DETER, STOCH
from dreamfleet.errors import CheckpointError, ConfigError, NonFiniteLoss
from tests.agent.batches import ACT_SPACE, IMAGE_SPACE, OBS_SPACE, QUICK, make_batch, make_config

MIXED = {**IMAGE_SPACE, **OBS_SPACE}


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    return tmp_path_factory.mktemp("logdir")


@pytest.fixture(scope="module")
def config(logdir):
    return make_config(logdir=str(logdir), replay__priority=0.5, dreamer__warmup=0)


@pytest.fixture(scope="module")
def agent(config):
    return Dreamer(MIXED, ACT_SPACE, config, QUICK)


@pytest.fixture(scope="module")
def start(agent):
    return agent.save()


@pytest.fixture
def fresh(agent, start):
    """The one agent, whose functions need not be compiled again, as it was before it did anything."""
    agent.load(start)
    agent.seed_policy(0)
    return agent


@pytest.fixture
def batch(config):
    return make_batch(MIXED, ACT_SPACE, config)


@pytest.fixture(scope="module")
def trained(agent, start, config):
    """What two updates in a row return."""
    agent.load(start)
    carry = agent.init_train(config.batch_size)
    batches = [make_batch(MIXED, ACT_SPACE, config, seed) for seed in (1, 2)]
    results = []
    for data in agent.stream(batches):
        carry, outs, metrics = agent.train(carry, data)
        results.append((outs, metrics))
    return batches, results


def test_quick_compilation_makes_the_same_parameters(agent, start, config, monkeypatch):
    thorough = {"xla_backend_optimization_level": 3}  # XLA's own default, which tests lower
    assert devices.quick_compiler_options()["xla_backend_optimization_level"] < 3
    monkeypatch.setattr(devices, "quick_compiler_options", lambda: thorough)
    other = Dreamer(MIXED, ACT_SPACE, config, QUICK).save()
    assert other.keys() == start.keys()
    for name, values in start.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def first_obs(batch):
    return {key: batch[key][:, 0] for key in MIXED}


def test_an_update_returns_what_the_one_before_computed(trained, config):
    (first, _), results = trained
    assert results[0] == ({}, {})
    outs, metrics = results[1]
    assert metrics["updates/last"] == 1
    replay, shape = outs["replay"], (config.batch_size, config.batch_length)
    np.testing.assert_array_equal(replay["stepid"], first["stepid"][:, 1:])
    assert (replay[DETER].dtype, replay[DETER].shape) == (np.float16, (*shape, 32))
    assert (replay[STOCH].dtype, replay[STOCH].shape) == (np.uint8, (*shape, 4))
    assert replay["priority"].shape == shape
    losses = {key.removeprefix("loss/") for key in metrics if key.startswith("loss/")}
    heads = {"dyn", "rep", "reward", "cont", "policy", "value", "replay_value", "total"}
    assert losses == heads | {"image", "vector", "token"}


def test_priority_is_the_loss_of_the_world_model(trained):
    outs, metrics = trained[1][1]
    parts = sum(metrics[f"loss/{name}"] for name in ("dyn", "rep", "image", "vector", "token"))
    assert outs["replay"]["priority"].mean() == pytest.approx(parts, rel=1e-4)


def test_stored_states_start_a_sequence(agent, config, batch, trained):
    """Other states in the context step change what follows, unless the sequence continues an earlier chunk."""
    changed = {**batch, DETER: batch[DETER] + np.float16(1)}
    results = {}
    for consec in (0, 1):
        for name, data in {"same": batch, "changed": changed}.items():
            carry = agent.init_report(config.batch_size)
            data = {**data, "consec": np.full_like(batch["consec"], consec)}
            data["is_first"] = np.zeros_like(batch["is_first"])
            results[consec, name] = agent.report(carry, data)[1]["loss/vector"]
    assert results[0, "same"] != results[0, "changed"]
    assert results[1, "same"] == results[1, "changed"]


def test_steps_that_were_recorded_without_states_start_from_the_initial_one(agent, config, batch, trained):
    recorded = {key: value for key, value in batch.items() if key not in (DETER, STOCH)}
    recorded["is_first"] = np.zeros_like(batch["is_first"])
    results = []
    for data in (recorded, {**batch, **recorded, "consec": np.ones_like(batch["consec"])}):
        initial = agent.init_report(config.batch_size)
        results.append(agent.report(initial, data)[1]["loss/vector"])
    assert results[0] == pytest.approx(results[1], rel=1e-5)


@pytest.mark.parametrize("states", ["none", "larger"])
def test_states_are_written_back_where_replay_stores_them(fresh, config, batch, states):
    """What an agent of another size recorded can be learned from, too."""
    recorded = {key: value for key, value in batch.items() if key not in (DETER, STOCH)}
    if states == "larger":
        recorded |= {key: np.concatenate([batch[key]] * 2, -1) for key in (DETER, STOCH)}
    carry, written = fresh.init_train(config.batch_size), []
    for data in (recorded, batch, batch):
        carry, outs, _ = fresh.train(carry, data)
        written.append(outs.get("replay", {}).keys() & {DETER, STOCH})
    assert written == [set(), set(), {DETER, STOCH}], "each call returns what the one before computed"


def test_states_of_others_do_not_matter_where_the_step_after_the_context_is_first(agent, config, batch, trained):
    """As `MixedStore` marks the sequences of another store."""
    is_first = np.zeros_like(batch["is_first"])
    is_first[:, : config.replay_context + 1] = True
    results = []
    for change in (0, 1):
        states = {DETER: batch[DETER] * np.float16(change), STOCH: batch[STOCH] * np.uint8(change)}
        carry = agent.init_report(config.batch_size)
        results.append(agent.report(carry, {**batch, **states, "is_first": is_first})[1]["loss/vector"])
    assert results[0] == results[1]


def test_report_shows_open_loop_predictions(agent, config, batch, trained):
    _, metrics = agent.report(agent.init_report(config.batch_size), batch)
    video = metrics["open_loop/image"]
    assert (video.dtype, video.shape) == (np.uint8, (config.batch_length, 3 * 32, 4 * 32, 3))
    np.testing.assert_array_equal(video[0, :32, :32], batch["image"][0, 1])
    assert {f"open_loop_error/{key}" for key in ("image", "vector", "token")} <= metrics.keys()


def test_report_gives_gradient_norms_if_asked():
    config = make_config(dreamer__grad_norms=True)
    agent = Dreamer(OBS_SPACE, ACT_SPACE, config, QUICK)
    _, metrics = agent.report(agent.init_report(config.batch_size), make_batch(OBS_SPACE, ACT_SPACE, config))
    assert metrics["grad_norm/vector/decoder"] > 0
    assert metrics["grad_norm/vector/actor"] == 0


def test_the_actor_finds_the_slot_form(agent):
    assert isinstance(agent, GrowingSlotAgent)


def test_slots_and_dict_form_act_alike(fresh, batch):
    first, later = first_obs(batch), {**first_obs(batch), "is_first": np.zeros(4, bool)}
    carry, expected = fresh.init_policy(4), []
    for obs in (first, later, later):
        carry, acts, outs = fresh.policy(carry, obs, "train")
        expected.append((acts, outs))
    fresh.seed_policy(0)
    fresh.init_slots(6)
    slots, is_new = np.array([5, 0, 3, 6], np.int32), np.ones(4, bool)
    for obs, (expected_acts, expected_outs) in zip((first, later, later), expected, strict=True):
        acts, outs = fresh.policy_slots(slots, is_new, obs, "train")
        assert acts.keys() == {"choice", "move"}
        jax.tree.map(np.testing.assert_array_equal, (acts, outs), (expected_acts, expected_outs))
        is_new = np.zeros(4, bool)


def test_slots_that_grow_in_mid_episode_keep_their_carries(fresh, batch):
    """Acts as if there had been as many from the start; the row of padding is in the scratch slot, which moves."""
    first, later = first_obs(batch), {**first_obs(batch), "is_first": np.zeros(4, bool)}

    def act(num_slots, grow):
        fresh.seed_policy(0)
        fresh.init_slots(num_slots)
        fresh.policy_slots(np.array([1, 0, 2, num_slots], np.int32), np.ones(4, bool), first, "train")
        if grow:
            fresh.grow_slots(6)
        # An environment that joins gets slot 4, which was the scratch slot before.
        slots, answers = np.array([2, 0, 4, 1], np.int32), []
        for is_new in (np.array([False, False, True, False]), np.zeros(4, bool)):
            answers.append(fresh.policy_slots(slots, is_new, later, "train"))
        return answers

    jax.tree.map(np.testing.assert_array_equal, act(4, grow=True), act(6, grow=False))


def test_a_new_episode_forgets_the_one_before(agent, batch):
    agent.init_slots(4)
    slots, obs = np.arange(4, dtype=np.int32), first_obs(batch)
    _, first = agent.policy_slots(slots, np.ones(4, bool), obs, "train")
    _, second = agent.policy_slots(slots, np.zeros(4, bool), {**obs, "is_first": np.zeros(4, bool)}, "train")
    _, third = agent.policy_slots(slots, np.zeros(4, bool), {**obs, "is_first": np.ones(4, bool)}, "train")
    assert (first[DETER] != second[DETER]).any()
    np.testing.assert_array_equal(first[DETER], third[DETER])


def test_nothing_is_compiled_in_steady_state(agent, config, trained, caplog):
    agent.init_slots(4)
    slots, is_new = np.arange(4, dtype=np.int32), np.zeros(4, bool)
    carry = agent.init_train(config.batch_size)

    def everything(carry, seed):
        batch = make_batch(MIXED, ACT_SPACE, config, seed)
        agent.policy_slots(slots, is_new, first_obs(batch), "train")
        agent.policy_slots(slots, is_new, first_obs(batch), "eval")
        carry, _, _ = agent.train(carry, next(agent.stream([batch])))
        agent.report(agent.init_report(config.batch_size), batch)
        return carry

    carry = everything(carry, 0)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for seed in range(1, 4):
            carry = everything(carry, seed)
    assert [r.message for r in caplog.records if "ompil" in r.message] == []


def test_save_and_load_continue_exactly(fresh, config, batch):
    fresh.train(fresh.init_train(4), batch)
    saved, results = fresh.save(), []
    assert all(isinstance(value, np.ndarray) for value in saved.values())
    assert "model/rssm/gates/kernel" in saved
    for _ in range(2):
        carry = fresh.init_train(4)
        for seed in (3, 4):
            carry, _, _ = fresh.train(carry, make_batch(MIXED, ACT_SPACE, config, seed))
        results.append(fresh.save())
        fresh.load(saved)
    jax.tree.map(np.testing.assert_array_equal, *results)
    assert (results[0]["model/rssm/gates/kernel"] != saved["model/rssm/gates/kernel"]).any()


def test_parts_can_be_loaded(fresh):
    agent, before = fresh, fresh.save()
    saved = {name: value + np.ones((), value.dtype) for name, value in before.items()}
    agent.load(saved, "model/(encoder|rssm)/")
    for name, value in agent.save().items():
        source = saved if re.match("model/(encoder|rssm)/", name) else before
        np.testing.assert_array_equal(value, source[name])
    with pytest.raises(CheckpointError, match="matches 'nothing'"):
        agent.load(saved, "nothing")
    with pytest.raises(CheckpointError, match=r"model/actor.* instead of \(16, 3\)"):
        agent.load({**saved, "model/actor/outputs/choice/out/kernel": np.zeros((1, 3))}, "actor")
    with pytest.raises(CheckpointError, match="has no learning/slow_critic"):
        agent.load({}, None)


def test_a_loss_that_is_not_finite_stops_training(fresh, batch, logdir):
    agent, good = fresh, fresh.save()
    batch["vector"][1, 3] = np.nan
    carry, _, _ = agent.train(agent.init_train(4), batch)
    with pytest.raises(NonFiniteLoss, match=r"loss .* is not finite at update 1 .*vector=nan"):
        agent.save()
    with pytest.raises(NonFiniteLoss, match=r"bad_batch\.npz"):
        agent.train(carry, batch)
    with np.load(logdir / "bad_batch.npz") as kept:
        assert np.isnan(kept["vector"][1, 3]).all()
    assert all(np.isfinite(value).all() for value in good.values())


def test_acting_uses_the_parameters_of_finished_updates(fresh, batch):
    agent = fresh
    obs, carry = first_obs(batch), agent.init_train(4)

    def deter():
        return agent.policy(agent.init_policy(4), obs)[2][DETER]

    first = deter()
    carry, _, _ = agent.train(carry, batch)
    np.testing.assert_array_equal(deter(), first)
    agent.train(carry, batch)
    assert (deter() != first).any()


def test_batches_that_devices_cannot_share_are_refused():
    with pytest.raises(ConfigError, match="batch_size=4 cannot be shared by 3 devices"):
        Dreamer(OBS_SPACE, ACT_SPACE, make_config(jax__train_devices=3))
