"""The named sizes give models of about the size that they are named for."""

import functools

import elements
import jax
import numpy as np
import pytest

from dreamfleet.agent.dreamer.model import Model
from dreamfleet.agent.dreamer.names import count_parameters
from dreamfleet.agent.dreamer.sizes import SIZES
from dreamfleet.options import load_options
from tests.agent.batches import ACT_SPACE, STEP_SPACES


@pytest.mark.parametrize("name", [name for name in SIZES if name.endswith("m")])
def test_parameter_counts(name):
    obs_space = {"image": elements.Space(np.uint8, (64, 64, 3)), **STEP_SPACES}
    make = functools.partial(
        Model, obs_space=obs_space, act_space=ACT_SPACE, options=load_options({"dreamer.size": name}).dreamer
    )
    model = jax.eval_shape(make, jax.random.key(0))
    assert count_parameters(model)["total"] / 1e6 == pytest.approx(int(name[:-1]), rel=0.35)


def test_single_sizes_override_the_name():
    config = load_options({"dreamer.size": "1m", "dreamer.deter": 64}).dreamer
    model = jax.eval_shape(
        lambda key: Model(key, STEP_SPACES | {"x": elements.Space(np.float32)}, ACT_SPACE, config), jax.random.key(0)
    )
    assert (model.rssm.deter, model.rssm.classes) == (64, 4)
