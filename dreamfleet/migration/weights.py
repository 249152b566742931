"""The reference's weights under our names."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dreamfleet.errors import CheckpointError
from dreamfleet.migration.unpickling import load_pickle

# Their names as patterns, and ours. {last} is the number of the last layer of the image decoder, which counts down.
RULES = (
    (r"enc/mlp(\d+)norm/", r"encoder/vectors/layers/\1/norm/"),
    (r"enc/mlp(\d+)/", r"encoder/vectors/layers/\1/linear/"),
    (r"enc/cnn(\d+)norm/", r"encoder/images/\1/norm/"),
    (r"enc/cnn(\d+)/", r"encoder/images/\1/conv/"),
    (r"dyn/dynin0norm/", r"rssm/deter_in/norm/"),
    (r"dyn/dynin1norm/", r"rssm/stoch_in/norm/"),
    (r"dyn/dynin2norm/", r"rssm/action_in/norm/"),
    (r"dyn/dynin0/", r"rssm/deter_in/linear/"),
    (r"dyn/dynin1/", r"rssm/stoch_in/linear/"),
    (r"dyn/dynin2/", r"rssm/action_in/linear/"),
    (r"dyn/dynhid(\d+)norm/", r"rssm/hidden_norms/\1/"),
    (r"dyn/dynhid(\d+)/", r"rssm/hidden/\1/"),
    (r"dyn/dyngru/", r"rssm/gates/"),
    (r"dyn/obslogit/", r"rssm/posterior_logits/"),
    (r"dyn/obs(\d+)norm/", r"rssm/posterior/\1/norm/"),
    (r"dyn/obs(\d+)/", r"rssm/posterior/\1/linear/"),
    (r"dyn/priorlogit/", r"rssm/prior_logits/"),
    (r"dyn/prior(\d+)norm/", r"rssm/prior/\1/norm/"),
    (r"dyn/prior(\d+)/", r"rssm/prior/\1/linear/"),
    (r"dec/vec/(.+)/logits/", r"decoder/outputs/\1/out/"),
    (r"dec/vec/(.+)/pred/", r"decoder/outputs/\1/"),
    (r"dec/sp0/", r"decoder/images/from_deter/"),
    (r"dec/sp1norm/", r"decoder/images/from_stoch/norm/"),
    (r"dec/sp1/", r"decoder/images/from_stoch/linear/"),
    (r"dec/sp2/", r"decoder/images/stoch_out/"),
    (r"dec/spnorm/", r"decoder/images/norm/"),
    (r"dec/imgout/", r"decoder/images/out/"),
    (r"dec/mlp/", r"decoder/vectors/"),
    (r"rew/head/logits/", r"reward/out/"),
    (r"con/head/logit/", r"cont/out/"),
    (r"slowval/head/logits/", r"slow_critic/out/"),
    (r"val/head/logits/", r"critic/out/"),
    (r"pol/head/(.+)/logits/", r"actor/outputs/\1/out/"),
    (r"pol/head/(.+)/mean/", r"actor/outputs/\1/mean/"),
    (r"pol/head/(.+)/stddev/", r"actor/outputs/\1/std/"),
    (r"rew/mlp/", "reward/mlp/"),
    (r"con/mlp/", "cont/mlp/"),
    (r"slowval/mlp/", "slow_critic/mlp/"),
    (r"val/mlp/", "critic/mlp/"),
    (r"pol/mlp/", "actor/mlp/"),
)
_MLP = ((r"(^|/)linear(\d+)/", r"\1layers/\2/linear/"), (r"(^|/)norm(\d+)/", r"\1layers/\2/norm/"))
_CONV = re.compile(r"dec/conv(\d+)(norm)?/(.+)")


def read_weights(checkpoint: Path) -> tuple[dict[str, np.ndarray], int]:
    """The parameters in a checkpoint of the reference by their names, and its updates; runs no code that is in it."""
    params: dict[str, np.ndarray] = {}
    updates = 0
    for path in sorted(checkpoint.glob("agent*.pkl")):
        state = load_pickle(path)
        if not isinstance(state, dict) or not isinstance(state.get("params"), dict):
            raise CheckpointError(f"{path} is no agent of danijar/dreamerv3: it has no 'params'")
        params |= {str(name): _as_numbers(path, name, value) for name, value in state["params"].items()}
        counters = state.get("counters")
        if isinstance(counters, dict) and "updates" in counters:
            updates = int(_as_numbers(path, "updates", counters["updates"]))
    return params, updates


def translate_weights(params: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The parameters under the names of our agent's state; and the names that have no counterpart."""
    layers = [int(match[1]) for name in params if (match := _CONV.fullmatch(name))]
    last = max(layers, default=0)
    taken: dict[str, np.ndarray] = {}
    left = []
    for name, value in params.items():
        ours = rename(name, last)
        if ours is None:
            left.append(name)
        else:
            taken[("learning/" if ours.startswith("slow_critic/") else "model/") + ours] = value
    return taken, left


def rename(name: str, last: int) -> str | None:
    """Our name of a parameter, if there is one; `last` is the number of the image decoder's last layer."""
    if match := _CONV.fullmatch(name):
        return f"decoder/images/layers/{last - int(match[1])}/{'norm' if match[2] else 'conv'}/{match[3]}"
    for theirs, ours in RULES:
        renamed, count = re.subn(f"^{theirs}", ours, name)
        if count:
            for pattern, replacement in _MLP if "mlp/" in renamed or "vectors/" in ours else ():
                renamed = re.sub(pattern, replacement, renamed)
            return renamed
    return None


def _as_numbers(path: Path, name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biufc":
        raise CheckpointError(f"{path} is no agent of danijar/dreamerv3: {name!r} is no array of numbers")
    return array
