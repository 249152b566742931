"""Every shipped preset is a config that can run, and an agent that can be built."""

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
