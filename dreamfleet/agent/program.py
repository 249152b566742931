"""A policy that is taken out of its agent: what an agent returns from `export_policy`, for `dreamfleet export`."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

FORMAT = 1  # of the exported function's arguments; the loader refuses others


class PolicyProgram(NamedTuple):
    """A function that `jax.export` has serialised, and the arrays to call it with.

    It is called as `f(weights, carry, obs, seed, call)` and returns `(carry, acts)`: four dicts of arrays by name, of
    which all but the weights have a leading batch dimension of any size; `seed` and `call`, the number of the call, are
    uint32 scalars from which the randomness is derived. Rows of `obs` with `is_first` start from nothing.
    """

    serialized: bytes
    weights: dict[str, np.ndarray]
    carry: dict[str, np.ndarray]  # of one row that begins
    obs_keys: list[str]  # that the function takes, `is_first` among them
    seed: int
    platforms: tuple[str, ...]


@runtime_checkable
class ExportingAgent(Protocol):
    """An agent whose policy can do without it."""

    def export_policy(self, mode: str = "eval") -> PolicyProgram: ...
