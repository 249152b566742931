"""Observations and actions as the networks take them: which are images, which are classes, which are numbers."""

import dataclasses
import math
from collections.abc import Mapping

import elements
import jax
import jax.numpy as jnp
import numpy as np

from dreamfleet.agent.dreamer.networks.transforms import symlog
from dreamfleet.base.dimensions import IMAGE_FACTOR
from dreamfleet.base.keys import without_logs
from dreamfleet.errors import ConfigError

Arrays = dict[str, jax.Array]  # by key, on the device

NOT_OBSERVED = ("reward", "is_first", "is_last", "is_terminal")
MAX_CLASSES = 1024  # integers with a wider range are numbers rather than classes


@dataclasses.dataclass(frozen=True)
class Field:
    """One key of an observation or an action; hashable, so that compiled functions can depend on it."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    sizes: tuple[int, ...] = ()  # classes of each entry, in flat order; empty for numbers and images
    lows: tuple[int, ...] = ()  # the first class of each entry

    @property
    def is_image(self) -> bool:
        return self.dtype == "uint8" and len(self.shape) == 3

    @property
    def is_classes(self) -> bool:
        return bool(self.sizes)

    @property
    def classes(self) -> int:
        """Classes of the entry that has the most."""
        return max(self.sizes)

    @property
    def flat_size(self) -> int:
        """Numbers that a value is given to the networks as."""
        return math.prod(self.shape) * (self.classes if self.is_classes else 1)

    @property
    def class_mask(self) -> np.ndarray | None:
        """Which classes each entry really has, where they have different numbers of them."""
        mask = np.arange(self.classes) < np.array(self.sizes).reshape(*self.shape, 1)
        return None if mask.all() else mask

    def to_classes(self, value: jax.Array) -> jax.Array:
        """Values of a discrete field, counted from zero."""
        return value.astype(jnp.int32) - np.array(self.lows, np.int32).reshape(self.shape)

    def from_classes(self, classes: jax.Array) -> jax.Array:
        """The inverse of to_classes."""
        return (classes + np.array(self.lows, np.int32).reshape(self.shape)).astype(self.dtype)


def make_field(key: str, space: elements.Space) -> Field:
    """The field of a space."""
    field = Field(key, space.shape, space.dtype.name)
    if field.is_image or not space.discrete:
        return field
    if space.dtype == bool:
        low, high = np.zeros(space.shape, np.int64), np.full(space.shape, 2)
    else:
        low, high = (np.asarray(x, np.int64) for x in (space.low, space.high))
        high = high + (high == np.iinfo(space.dtype).max)  # a space without bounds includes its largest value
    if (high - low).max() > MAX_CLASSES:
        return field
    return dataclasses.replace(field, sizes=tuple((high - low).ravel().tolist()), lows=tuple(low.ravel().tolist()))


def image_fields(obs_space: Mapping[str, elements.Space]) -> tuple[Field, ...]:
    """The observations that are images, sorted; refuses sizes that the networks cannot take."""
    fields = tuple(field for field in _fields(obs_space) if field.is_image)
    for field in fields:
        if any(side % IMAGE_FACTOR for side in field.shape[:2]):
            reason = f"gives '{field.key}' as an image of {field.shape[:2]}, not multiples of {IMAGE_FACTOR}"
            raise ConfigError("task", field.key, reason, "resize it in the environment, for example to 64 x 64")
    if len({field.shape[:2] for field in fields}) > 1:
        shapes = {field.key: field.shape for field in fields}
        raise ConfigError("task", shapes, "has images of several sizes", "resize them to one size in the environment")
    return fields


def vector_fields(obs_space: Mapping[str, elements.Space]) -> tuple[Field, ...]:
    """The observations that are not images, sorted."""
    return tuple(field for field in _fields(obs_space) if field.key not in NOT_OBSERVED and not field.is_image)


def action_fields(act_space: Mapping[str, elements.Space]) -> tuple[Field, ...]:
    """The actions that the policy chooses, sorted."""
    return tuple(field for field in _fields(act_space) if field.key != "reset")


def flatten(values: Mapping[str, jax.Array], fields: tuple[Field, ...], squash: bool) -> jax.Array:
    """All fields side by side: classes as one-hot vectors, numbers as they are or, with `squash`, through symlog."""
    parts = []
    for field in fields:
        value = values[field.key]
        batch = value.shape[: value.ndim - len(field.shape)]
        if field.is_classes:
            value = jax.nn.one_hot(field.to_classes(value), field.classes)
        else:
            value = value.astype(jnp.float32)
            value = symlog(value) if squash else value
        parts.append(value.reshape(*batch, -1))
    return jnp.concatenate(parts, -1)


def _fields(spaces: Mapping[str, elements.Space]) -> list[Field]:
    return [make_field(key, space) for key, space in sorted(without_logs(spaces).items())]
