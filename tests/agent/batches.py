"""Small agents and the batches that a learner would give them."""

from collections.abc import Callable
from typing import Any

import elements
import jax
import jax.numpy as jnp
import numpy as np

from dreamfleet.agent.dreamer.learning import DETER, STOCH
from dreamfleet.agent.dreamer.sizes import model_sizes
from dreamfleet.agent.dreamer.tuning import Tuning
from dreamfleet.options import agent_options, load_options

QUICK = Tuning(observe_unroll=1, imagine_unroll=1)  # to compile; `test_reference.py` compares the shipped form too

STEP_SPACES = {
    "reward": elements.Space(np.float32),
    "is_first": elements.Space(bool),
    "is_last": elements.Space(bool),
    "is_terminal": elements.Space(bool),
}
OBS_SPACE = {"vector": elements.Space(np.float32, (5,)), "token": elements.Space(np.int32, (), 0, 4), **STEP_SPACES}
IMAGE_SPACE = {"image": elements.Space(np.uint8, (32, 32, 3)), **STEP_SPACES}
ACT_SPACE = {
    "choice": elements.Space(np.int32, (), 0, 3),
    "move": elements.Space(np.float32, (2,), -1, 1),
    "reset": elements.Space(bool),
}


def make_config(**overrides) -> elements.Config:
    """The agent's config at debug size, with options such as `dreamer__warmup=0`."""
    values = {
        "jax.train_devices": 1,
        "jax.cache": "",
        "dreamer.size": "debug",
        "batch_size": 4,
        "batch_length": 8,
        "report_length": 8,
        "dreamer.imag_length": 3,
    }
    values |= {key.replace("__", "."): value for key, value in overrides.items()}
    return agent_options(load_options(values))


def random_module(make: Callable[[], Any], scale: float = 0.3, seed: int = 0) -> Any:
    """What `make` returns, with small random numbers in it: much quicker than to compile its own initialisation."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(scale=scale, size=x.shape), x.dtype), jax.eval_shape(make))


def sample_space(space: elements.Space, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    shape = (*shape, *space.shape)
    if space.dtype == bool:
        return rng.random(shape) < 0.2
    if space.discrete:
        return rng.integers(space.low, space.high, shape).astype(space.dtype)
    return rng.normal(size=shape).astype(space.dtype)


def make_batch(obs_space, act_space, config: elements.Config, seed: int = 0, rows: int | None = None) -> dict:
    """Random sequences of every key that replay would send."""
    rng = np.random.default_rng(seed)
    sizes = model_sizes(config.dreamer)
    shape = (rows or config.batch_size, config.batch_length + config.replay_context)
    batch = {
        key: sample_space(space, shape, rng) for key, space in {**obs_space, **act_space}.items() if key != "reset"
    }
    batch["is_first"][:, 0] = True
    batch["consec"] = np.zeros(shape, np.int32)
    batch["stepid"] = rng.integers(0, 256, (*shape, 20)).astype(np.uint8)
    batch[DETER] = rng.normal(size=(*shape, sizes.deter)).astype(np.float16)
    batch[STOCH] = rng.integers(0, sizes.classes, (*shape, sizes.stoch)).astype(np.uint8)
    return batch
