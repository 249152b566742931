"""The recorded numbers of the reference implementation, and our model with its weights."""

import json
import os
from pathlib import Path

import elements
import jax
import jax.numpy as jnp
import numpy as np

from dreamfleet.agent.dreamer.model import Model
from dreamfleet.agent.dreamer.names import named_leaves, replace_leaves
from dreamfleet.agent.dreamer.tuning import Tuning
from dreamfleet.migration.weights import translate_weights
from dreamfleet.options import load_options
from tests.agent.batches import QUICK

PATH = Path(os.environ.get("DREAMFLEET_REFERENCE") or Path(__file__).parents[1] / "data" / "reference_a.npz")

TOLERANCE = 1e-4
# What the recording was made from, and what its formulas were given.
INPUTS = r"(obs|prevact|carry|param|ac/feat|ac/act|opt/param0|opt/grad\d+)/.*|fn/symlog/x|fn/twohot\d+/(logits|target)"


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
        self.model = self._load(model, "model")
        self.slow_critic = self._load(self.model.critic, "learning", "slow_critic/")

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

    def _load(self, module, part: str, prefix: str = ""):
        imported, _ = translate_weights(self.under("param/"))
        leaves = named_leaves(module, prefix)
        values = {name: jnp.asarray(imported[f"{part}/{name}"]) for name in leaves}
        assert all(values[name].shape == leaf.shape for name, leaf in leaves.items())
        return replace_leaves(module, values, prefix)
