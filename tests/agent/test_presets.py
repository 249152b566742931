"""Every shipped preset can run, builds its agent, and has the published values."""

import jax
import pytest

from dreamfleet.agent.dreamer.model import Model
from dreamfleet.options import check_options, load_options
from dreamfleet.options.load import load_presets
from tests.agent.batches import ACT_SPACE, IMAGE_SPACE


@pytest.mark.parametrize("name", load_presets())
def test_preset(name, tmp_path):
    config = load_options({"logdir": str(tmp_path)}, [name])
    check_options(config)
    make = jax.eval_shape(lambda key: Model(key, IMAGE_SPACE, ACT_SPACE, config.dreamer), jax.random.key(0))
    assert make.rssm.classes <= 256  # replay stores class numbers as bytes


# Task, steps, environments, train ratio and size of the benchmarks in the configuration of danijar/dreamerv3.
PUBLISHED = {
    "atari": ("atari_pong", 51_000_000, 16, 32, "200m"),
    "atari100k": ("atari100k_pong", 110_000, 1, 256, "200m"),
    "crafter": ("crafter_reward", 1_100_000, 1, 512, "200m"),
    "dmc_proprio": ("dmc_walker_walk", 1_100_000, 16, 1024, "1m"),
    "dmc_vision": ("dmc_walker_walk", 1_100_000, 16, 256, "200m"),
    "dmlab": ("dmlab_explore_goal_locations_small", 26_000_000, 16, 32, "200m"),
    "procgen": ("procgen_coinrun", 110_000_000, 16, 64, "200m"),
    "bsuite": ("bsuite_mnist/0", 0, 1, 1024, "200m"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_values(name):
    options = load_options({}, [name])
    run = options.run
    assert (options.task, run.steps, run.envs, run.train_ratio, options.dreamer.size) == PUBLISHED[name]
    assert (options.batch_size, options.batch_length, options.report_length, options.replay_context) == (16, 64, 32, 1)
    assert options.env.dmc.image == (name != "dmc_proprio") and options.env.dmc.proprio == (name != "dmc_vision")


def test_published_hyper_parameters():
    options = load_options({}).dreamer
    assert (options.learning_rate, options.warmup, options.clip, options.beta1, options.beta2) == (
        4e-5,
        1000,
        0.3,
        0.9,
        0.999,
    )
    assert (options.imag_length, options.horizon, options.trace, options.entropy_scale) == (15, 333, 0.95, 3e-4)
    assert (options.free_nats, options.unimix, options.slow_rate, options.bins) == (1.0, 0.01, 0.02, 255)
    scales = options.loss_scales
    assert (scales.dyn, scales.rep, scales.policy, scales.value, scales.replay_value) == (1.0, 0.1, 1.0, 1.0, 0.3)
