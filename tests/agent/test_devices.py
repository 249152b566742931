"""Precision and devices: the same losses whatever the mesh, and checkpoints that go from one to another."""

import jax
import numpy as np
import pytest

from dreamfleet.agent.dreamer import Dreamer
from tests.agent.batches import ACT_SPACE, OBS_SPACE, QUICK, make_batch, make_config

TUNING = QUICK._replace(min_sharded=16)  # parameters are small here


def run(updates=2, saved=None, **options):
    """The metrics of each update and what is saved after them."""
    config = make_config(dreamer__warmup=0, **{f"jax__{key}": value for key, value in options.items()})
    agent = Dreamer(OBS_SPACE, ACT_SPACE, config, TUNING)
    if saved:
        agent.load(saved)
    carry, results = agent.init_train(config.batch_size), []
    for data in agent.stream(make_batch(OBS_SPACE, ACT_SPACE, config, seed) for seed in range(updates + 1)):
        carry, _, metrics = agent.train(carry, data)
        results.append(metrics)
    return agent, results[1:]


@pytest.fixture(scope="module")
def single():
    agent, metrics = run(train_devices=1)
    return agent.save(), metrics


@pytest.mark.parametrize("count, sharding", [(2, "replicated"), (2, "sharded"), (4, "sharded")])
def test_more_devices_compute_the_same(single, count, sharding):
    agent, metrics = run(train_devices=count, sharding=sharding, policy_device=count - 1)
    for ours, theirs in zip(metrics, single[1], strict=True):
        for key in theirs:
            np.testing.assert_allclose(ours[key], theirs[key], rtol=2e-3, atol=1e-4, err_msg=key)
    kernel = agent._model.rssm.gates.kernel
    assert len(kernel.sharding.device_set) == count
    assert kernel.sharding.is_fully_replicated == (sharding == "replicated")
    assert agent._acting[0].devices() == {jax.devices()[count - 1]}


def test_a_checkpoint_of_one_mesh_is_loaded_by_another(single):
    saved, _ = single
    agent, _ = run(updates=0, train_devices=4, sharding="sharded")
    agent.load(saved)
    jax.tree.map(np.testing.assert_array_equal, agent.save(), saved)
    assert not agent._model.rssm.gates.kernel.sharding.is_fully_replicated


def test_half_precision_is_close(single):
    agent, metrics = run(train_devices=1, precision="bfloat16")
    for key in ("loss/vector", "loss/reward", "loss/cont", "loss/dyn"):
        np.testing.assert_allclose(metrics[0][key], single[1][0][key], rtol=0.05, err_msg=key)
    assert {str(value.dtype) for name, value in agent.save().items() if name.startswith("model/")} == {"float32"}
