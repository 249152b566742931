"""Gymnasium's spaces as flat named ones of ours, and values from either to the other; used by both Gymnasium adapters.

Nested spaces become keys joined with `/`. Values may have a leading dimension, for several environments at once.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import elements
import numpy as np
from gymnasium import spaces

from dreamfleet.envs.contract import can_hold
from dreamfleet.errors import EnvError

INT32 = np.iinfo(np.int32)
COUNTED = (spaces.Discrete, spaces.MultiDiscrete)  # begin at `start` there and at 0 here
ACCEPTED = "Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"


class Leaf:
    """One of our keys: its space, and where its value is in Gymnasium's tree.

    `entry` is the number in a MultiDiscrete whose entries, with different numbers of classes, have a key each.
    """

    def __init__(self, key: str, path: tuple, source: Any, entry: int | None = None):
        self.key = key
        self.space = _convert(source, entry)
        self._path = path
        self._ndim = len(source.shape)
        self._source = source
        self._entry = entry

    def read(self, tree: Any) -> np.ndarray:
        """The value of this key in an observation of Gymnasium's."""
        for part in self._path:
            tree = tree[part]
        value = np.asarray(tree)
        if value.dtype != self.space.dtype and not can_hold(self.space.dtype, value.dtype):
            raise EnvError(f"observation '{self.key}' is {value.dtype}, but its space is {self._source}")
        if isinstance(self._source, COUNTED):
            value = value - self._source.start
        if self._entry is not None:
            value = value.reshape(*value.shape[: value.ndim - self._ndim], -1)[..., self._entry]
        if self.space.dtype == np.int32:
            value = np.clip(value, INT32.min, INT32.max)
        return value.astype(self.space.dtype, copy=False)


def find_leaves(space: Any, name: str) -> list[Leaf]:
    """All leaves of a space; `name` is the key of a space that has no names of its own."""
    return list(_walk(space, name, ()))


def is_image(space: Any) -> bool:
    """Whether a space holds images, in any layout: bytes with their whole range in two or three dimensions."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return False
    return not space.low.any() and bool((space.high == 255).all())


def join_action(space: Any, values: Mapping[str, np.ndarray], name: str) -> Any:
    """The action that Gymnasium takes, from our values by key; the inverse of what `find_leaves` takes apart."""
    if isinstance(space, spaces.Dict):
        prefix = f"{name}/" if name else ""
        return {k: join_action(s, values, f"{prefix}{k}") for k, s in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(join_action(s, values, f"{name}/{i}") for i, s in enumerate(space.spaces))
    if _is_unequal(space):
        entries = np.stack([np.asarray(values[f"{name}/{i}"]) for i in range(space.nvec.size)], -1)
        value = entries.reshape(*entries.shape[:-1], *space.shape)
    else:
        value = np.asarray(values[name])
    if isinstance(space, COUNTED):
        value = value + space.start
    value = value.astype(space.dtype)
    return int(value) if isinstance(space, spaces.Discrete) and not value.ndim else value


def _walk(space: Any, name: str, path: tuple) -> Iterator[Leaf]:
    if isinstance(space, spaces.Dict):
        prefix = f"{name}/" if path else ""
        for key, child in space.spaces.items():
            yield from _walk(child, f"{prefix}{key}", (*path, key))
    elif isinstance(space, spaces.Tuple):
        for i, child in enumerate(space.spaces):
            yield from _walk(child, f"{name}/{i}", (*path, i))
    elif _is_unequal(space):
        yield from (Leaf(f"{name}/{i}", path, space, i) for i in range(space.nvec.size))
    elif isinstance(space, (spaces.Box, spaces.MultiBinary, *COUNTED)):
        yield Leaf(name, path, space)
    else:
        raise EnvError(
            f"'{name}' has the space {space}, which cannot become arrays of a fixed shape; wrap the environment "
            f"so that it has a {ACCEPTED} space there, or leaves it out (gymnasium.wrappers.FilterObservation)"
        )


def _is_unequal(space: Any) -> bool:
    return isinstance(space, spaces.MultiDiscrete) and len(np.unique(space.nvec)) > 1


def _convert(space: Any, entry: int | None) -> elements.Space:
    if isinstance(space, spaces.Discrete):
        return elements.Space(np.int32, (), 0, int(space.n))
    if isinstance(space, spaces.MultiBinary):
        return elements.Space(np.int32, space.shape, 0, 2)
    if isinstance(space, spaces.MultiDiscrete):
        if entry is not None:
            return elements.Space(np.int32, (), 0, int(space.nvec.flat[entry]))
        return elements.Space(np.int32, space.shape, 0, space.nvec)
    if np.issubdtype(space.dtype, np.floating):
        return elements.Space(np.float32, space.shape, space.low, space.high)
    if is_image(space):
        return elements.Space(np.uint8, space.shape)
    # Not in the space's own type: its largest value may have none above it.
    low, high = (np.clip(x.astype(float), INT32.min, INT32.max).astype(np.int64) for x in (space.low, space.high))
    # Bytes in two or three dimensions would be taken for an image.
    is_small = space.dtype == np.uint8 and len(space.shape) not in (2, 3)
    return elements.Space(np.uint8 if is_small else np.int32, space.shape, low, high + 1)
