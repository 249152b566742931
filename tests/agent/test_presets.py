"""Every shipped preset is a config that can run, and an agent that can be built."""

import jax
import pytest
from batches import ACT_SPACE, IMAGE_SPACE

from dreamfleet.agent.model import Model
from dreamfleet.config import check_config, load_config
from dreamfleet.config.load import load_presets


@pytest.mark.parametrize("name", load_presets())
def test_preset(name, tmp_path):
    config = load_config({"logdir": str(tmp_path)}, [name])
    check_config(config)
    make = jax.eval_shape(lambda key: Model(key, IMAGE_SPACE, ACT_SPACE, config.dreamer), jax.random.key(0))
    assert make.rssm.classes <= 256  # replay stores class numbers as bytes
