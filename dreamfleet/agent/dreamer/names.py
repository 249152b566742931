"""Parameters by name, such as `encoder/images/0/conv/kernel`: for checkpoints and for loading parts of them."""

import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dreamfleet.errors import CheckpointError


def named_leaves(tree: Any, prefix: str = "") -> dict[str, Any]:
    """The arrays of a tree by the path of attributes, keys and indices that leads to each."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {prefix + "/".join(map(_name, path)): leaf for path, leaf in leaves}


def replace_leaves(tree: Any, values: dict[str, Any], prefix: str = "") -> Any:
    """The tree with the arrays whose names are in `values` replaced."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    named = [(prefix + "/".join(map(_name, path)), leaf) for path, leaf in leaves]
    return jax.tree_util.tree_unflatten(structure, [values.get(name, leaf) for name, leaf in named])


def pick_leaves(saved: Mapping[str, Any], wanted: Mapping[str, Any], regex: str | None) -> dict[str, Any]:
    """The saved arrays to take over: all of them, or those among the wanted whose names the regex is found in."""
    names = [name for name in wanted if regex is None or (name in saved and re.search(regex, name))]
    missing = [name for name in names if name not in saved]
    if missing:
        raise CheckpointError(f"the checkpoint has no {few(missing)}; it is from another agent or model size")
    if not names:
        raise CheckpointError(f"no parameter of the checkpoint matches {regex!r}; it has {few(sorted(saved))}")
    changed = [name for name in names if np.shape(saved[name]) != np.shape(wanted[name])]
    if changed:
        shapes = [f"{name} {np.shape(saved[name])} instead of {np.shape(wanted[name])}" for name in changed]
        raise CheckpointError(f"the checkpoint has other shapes: {few(shapes)}; choose other parameters by regex")
    return {name: saved[name] for name in names}


def find_unmatched(saved: Mapping[str, Any], wanted: Mapping[str, Any], regex: str) -> tuple[list[str], list[str]]:
    """The names, among those that the regex is found in, that the checkpoint lacks, and those that only it has."""
    missing = [name for name in wanted if name not in saved and re.search(regex, name)]
    return missing, [name for name in saved if name not in wanted and re.search(regex, name)]


def few(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


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
