"""Parameters by name: `encoder/vectors/layers/0/linear/kernel` and the like, for checkpoints, partial loading and reports."""

from typing import Any

import jax
import numpy as np


def named_leaves(tree: Any, prefix: str = "") -> dict[str, Any]:
    """The arrays of a tree by the path of attributes, keys and indices that leads to each."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {prefix + "/".join(map(_name, path)): leaf for path, leaf in leaves}


def replace_leaves(tree: Any, values: dict[str, Any], prefix: str = "") -> Any:
    """The tree with the arrays whose names are in `values` replaced."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    named = [(prefix + "/".join(map(_name, path)), leaf) for path, leaf in leaves]
    return jax.tree_util.tree_unflatten(structure, [values.get(name, leaf) for name, leaf in named])


def count_parameters(tree: Any) -> dict[str, int]:
    """Parameters of each top-level part, and in total."""
    counts: dict[str, int] = {}
    for name, leaf in named_leaves(tree).items():
        part = name.split("/")[0]
        counts[part] = counts.get(part, 0) + int(np.prod(leaf.shape))
    return {**counts, "total": sum(counts.values())}


def _name(entry: Any) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    raise TypeError(entry)
