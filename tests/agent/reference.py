"""The recorded numbers of the reference implementation, and our model with its weights."""

import json
import os
import re
from pathlib import Path

import elements
import jax
import jax.numpy as jnp
import numpy as np

from dreamfleet.agent.dreamer.model import Model
from dreamfleet.agent.dreamer.names import named_leaves, replace_leaves
from dreamfleet.agent.dreamer.tuning import Tuning
from dreamfleet.options import load_options
from tests.agent.batches import QUICK

PATH = Path(os.environ.get("DREAMFLEET_REFERENCE") or Path(__file__).parents[1] / "data" / "reference_a.npz")

TOLERANCE = 1e-4
# What the recording was made from, and what its formulas were given.
INPUTS = r"(obs|prevact|carry|param|ac/feat|ac/act|opt/param0|opt/grad\d+)/.*|fn/symlog/x|fn/twohot\d+/(logits|target)"

# From our parameter names to those of the recording.
RENAME = (
    (r"encoder/vectors/layers/(\d)/linear/", r"enc/mlp\1/"),
    (r"encoder/vectors/layers/(\d)/norm/", r"enc/mlp\1norm/"),
    (r"encoder/images/(\d)/conv/", r"enc/cnn\1/"),
    (r"encoder/images/(\d)/norm/", r"enc/cnn\1norm/"),
    (r"rssm/deter_in/linear/", r"dyn/dynin0/"),
    (r"rssm/stoch_in/linear/", r"dyn/dynin1/"),
    (r"rssm/action_in/linear/", r"dyn/dynin2/"),
    (r"rssm/deter_in/norm/", r"dyn/dynin0norm/"),
    (r"rssm/stoch_in/norm/", r"dyn/dynin1norm/"),
    (r"rssm/action_in/norm/", r"dyn/dynin2norm/"),
    (r"rssm/hidden/(\d)/", r"dyn/dynhid\1/"),
    (r"rssm/hidden_norms/(\d)/", r"dyn/dynhid\1norm/"),
    (r"rssm/gates/", r"dyn/dyngru/"),
    (r"rssm/posterior/(\d)/linear/", r"dyn/obs\1/"),
    (r"rssm/posterior/(\d)/norm/", r"dyn/obs\1norm/"),
    (r"rssm/posterior_logits/", r"dyn/obslogit/"),
    (r"rssm/prior/(\d)/linear/", r"dyn/prior\1/"),
    (r"rssm/prior/(\d)/norm/", r"dyn/prior\1norm/"),
    (r"rssm/prior_logits/", r"dyn/priorlogit/"),
    (r"decoder/vectors/layers/(\d)/", r"dec/mlp/layers/\1/"),
    (r"decoder/outputs/(\w+)/out/", r"dec/vec/\1/logits/"),
    (r"decoder/outputs/(\w+)/(kernel|bias)", r"dec/vec/\1/pred/\2"),
    (r"decoder/images/from_deter/", r"dec/sp0/"),
    (r"decoder/images/from_stoch/linear/", r"dec/sp1/"),
    (r"decoder/images/from_stoch/norm/", r"dec/sp1norm/"),
    (r"decoder/images/stoch_out/", r"dec/sp2/"),
    (r"decoder/images/norm/", r"dec/spnorm/"),
    (r"decoder/images/layers/0/conv/", r"dec/conv2/"),
    (r"decoder/images/layers/1/conv/", r"dec/conv1/"),
    (r"decoder/images/layers/2/conv/", r"dec/conv0/"),
    (r"decoder/images/layers/0/norm/", r"dec/conv2norm/"),
    (r"decoder/images/layers/1/norm/", r"dec/conv1norm/"),
    (r"decoder/images/layers/2/norm/", r"dec/conv0norm/"),
    (r"decoder/images/out/", r"dec/imgout/"),
    (r"^reward/out/", r"rew/head/logits/"),
    (r"^cont/out/", r"con/head/logit/"),
    (r"^(slow_critic)/out/", r"slowval/head/logits/"),
    (r"^critic/out/", r"val/head/logits/"),
    (r"^actor/outputs/(\w+)/out/", r"pol/head/\1/logits/"),
    (r"^actor/outputs/(\w+)/mean/", r"pol/head/\1/mean/"),
    (r"^actor/outputs/(\w+)/std/", r"pol/head/\1/stddev/"),
    (r"^reward/mlp", "rew/mlp"),
    (r"^cont/mlp", "con/mlp"),
    (r"^slow_critic/mlp", "slowval/mlp"),
    (r"^critic/mlp", "val/mlp"),
    (r"^actor/mlp", "pol/mlp"),
    (r"mlp/layers/(\d)/linear/", r"mlp/linear\1/"),
    (r"mlp/layers/(\d)/norm/", r"mlp/norm\1/"),
)


def rename(name: str) -> str:
    for pattern, replacement in RENAME:
        name = re.sub(pattern, replacement, name)
    return name


class Reference:
    """One recording: arrays by key, and the model of the same sizes with the same weights."""

    def __init__(self, path: Path = PATH, tuning: Tuning = QUICK):
        self.meta = json.loads(path.with_suffix(".json").read_text())
        self.arrays = dict(np.load(path))
        self.compared: set[str] = set()  # keys
        sizes = dict(self.meta["sizes"])
        overrides = {f"dreamer.{key}": value for key, value in sizes.items()}
        overrides |= {"dreamer.horizon": self.meta["horizon"], "dreamer.contdisc": self.meta["contdisc"]}
        self.config = load_options(overrides).dreamer
        self.obs_space = {key: self._space(f"obs/{key}", 2) for key in self.under("obs/")}
        self.act_space = {key: self._space(f"prevact/{key}", 2) for key in self.under("prevact/")}
        spaces = self.obs_space, self.act_space
        model = jax.eval_shape(lambda: Model(jax.random.key(0), *spaces, self.config, tuning=tuning))
        self.model = self._load(model, "")
        self.slow_critic = self._load(self.model.critic, "slow_critic/")

    def __getitem__(self, key: str) -> jax.Array:
        return jnp.asarray(self.arrays[key])

    def compare(self, key: str, ours: jax.Array) -> None:
        """Holds what we computed against the recorded array."""
        theirs, ours = self.arrays[key], np.asarray(ours)
        assert ours.shape == theirs.shape, (key, ours.shape, theirs.shape)
        scale = np.abs(theirs).max() + 1e-12
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=key)
        self.compared.add(key)

    def under(self, prefix: str) -> dict[str, jax.Array]:
        """The arrays whose keys begin with the prefix, without it."""
        return {key.removeprefix(prefix): self[key] for key in self.arrays if key.startswith(prefix)}

    def _space(self, key: str, batch: int) -> elements.Space:
        array = self.arrays[key]
        if array.dtype == np.int32:
            name = key.split("/")[1]
            weights = (f"param/dec/vec/{name}/logits/bias", f"param/pol/head/{name}/logits/bias")
            classes = next(len(self.arrays[name]) for name in weights if name in self.arrays)
            return elements.Space(np.int32, (), 0, classes)
        return elements.Space(array.dtype, array.shape[batch:])

    def _load(self, module, prefix: str):
        values = {}
        for name, leaf in named_leaves(module, prefix).items():
            key = f"param/{rename(name)}"
            assert self.arrays[key].shape == leaf.shape, (name, key)
            values[name] = self[key]
        return replace_leaves(module, values, prefix)
