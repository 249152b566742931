"""Every shipped preset can run, builds its agent, and has the published values."""

import math

import jax
import pytest

from dreamfleet.agent.dreamer.devices import compute_dtype
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


# The configuration of danijar/dreamerv3 (main branch): task, steps (0: no end), environments, train ratio and size.
PUBLISHED = {
    "atari": ("atari_pong", 51_000_000, 16, 32, "200m"),
    "atari100k": ("atari100k_pong", 110_000, 1, 256, "200m"),
    "crafter": ("crafter_reward", 1_100_000, 1, 512, "200m"),
    "dmc_proprio": ("dmc_walker_walk", 1_100_000, 16, 1024, "1m"),
    "dmc_vision": ("dmc_walker_walk", 1_100_000, 16, 256, "200m"),
    "dmlab": ("dmlab_explore_goal_locations_small", 26_000_000, 16, 32, "200m"),
    "procgen": ("procgen_coinrun", 110_000_000, 16, 64, "200m"),
    "bsuite": ("bsuite_mnist/0", 0, 1, 1024, "200m"),
    "minecraft": ("minecraft_diamond", 0, 16, 32, "200m"),
    "loconav": ("loconav_ant_maze_m", 0, 16, 256, "200m"),
}
# The same as it was in April 2024, with the experiments of the paper.
PAPER = {
    "dmc_proprio_paper": ("dmc_walker_walk", 300_000, 16, 512, "12m"),
    "dmc_vision_paper": ("dmc_walker_walk", 600_000, 16, 512, "12m"),
}
# The section `env` there, with our words for the values.
PUBLISHED_ENVS = {
    "atari": {
        "size": 96,
        "repeat": 4,
        "sticky": True,
        "gray": True,
        "actions": "full",
        "lives": "unused",
        "noops": 30,
        "resize": "bilinear",
        "length": 108_000,
    },
    "atari100k": {
        "size": 64,
        "repeat": 4,
        "sticky": False,
        "gray": False,
        "actions": "needed",
        "lives": "unused",
        "noops": 30,
        "resize": "bilinear",
        "length": 108_000,
    },
    "procgen": {"size": 96, "resize": "bilinear"},
    "crafter": {"size": 64},
    "dmc": {"size": 64, "repeat": 1, "proprio": True, "image": True, "camera": -1},
    "dmlab": {"size": 64, "repeat": 4, "episodic": True, "actions": "popart"},
    "minecraft": {"size": 64, "break_speed": 100.0, "length": 36_000},
    "loconav": {"size": 64, "repeat": 1, "camera": -1},
}


@pytest.mark.parametrize("name", PUBLISHED | PAPER)
def test_published_values(name):
    options = load_options({}, [name])
    run = options.run
    expected = (PUBLISHED | PAPER)[name]
    assert (options.task, run.steps, run.envs, run.train_ratio, options.dreamer.size) == expected
    # Its score is made of the training episodes, so that bsuite has nothing to evaluate.
    assert run.eval_envs == (0 if name == "bsuite" else 4)
    assert (options.batch_size, options.batch_length, options.report_length, options.replay_context) == (16, 64, 32, 1)
    is_proprio, is_vision = name.startswith("dmc_proprio"), name.startswith("dmc_vision")
    assert options.env.dmc.image == (not is_proprio) and options.env.dmc.proprio == (not is_vision)
    assert options.env.dmc.repeat == (2 if name in PAPER else 1)
    assert run.save_every == (0 if name == "bsuite" else 900)


@pytest.mark.parametrize("suite", PUBLISHED_ENVS)
def test_published_environments(suite):
    section = getattr(load_options({}).env, suite)
    assert {key: getattr(section, key) for key in PUBLISHED_ENVS[suite]} == PUBLISHED_ENVS[suite]


@pytest.mark.parametrize("suite", [*PUBLISHED_ENVS, "gym", "pinpad", "bsuite", "unknown"])
def test_frames_are_steps_times_the_action_repeat_of_the_suite(suite):
    assert load_options({}).env.action_repeat(suite) == PUBLISHED_ENVS.get(suite, {}).get("repeat", 1)
    assert load_options({}, ["dmc_vision_paper"]).env.action_repeat("dmc") == 2


def test_published_defaults():
    options = load_options({})
    run, replay = options.run, options.replay
    assert (run.train_ratio, run.envs, run.eval_envs, run.report_batches) == (32, 16, 4, 1)
    assert (run.report_every, run.save_every, run.episode_timeout) == (300, 900, 180)
    assert (options.consec_train, options.consec_report, options.replay_context) == (1, 1, 1)
    assert replay.online
    assert (replay.uniform, replay.priority, replay.recency) == (1, 0, 0)
    assert (replay.priority_exponent, replay.priority_max, replay.priority_initial) == (0.8, 0.5, math.inf)
    assert replay.priority_zero and replay.recency_exponent == 1
    assert options.jax.precision == "auto"


def test_presets_for_two_cores_leave_the_published_numbers_of_processes():
    for name in ("debug", "tiny", "cartpole"):
        run = load_options({}, [name]).run
        assert run.envs <= 4 and run.eval_envs == 0
    assert not load_options({}, ["tiny"]).replay.online


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_the_compute_dtype_follows_from_the_device(platform):
    assert compute_dtype("auto", platform) == ("float32" if platform == "cpu" else "bfloat16")
    assert [compute_dtype(chosen, platform) for chosen in ("float32", "bfloat16")] == ["float32", "bfloat16"]


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
