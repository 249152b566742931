"""Loads a policy that `dreamfleet export` wrote; this one file needs only jax and numpy.

from load_policy import load
policy = load("policy")                  # the exported directory or .zip file
policy.reset()                           # an episode begins
act = policy(obs)                        # once a step
"""

import io
import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

FORMAT = 1


def load(path: str | Path) -> "Policy":
    """The policy in a directory or .zip file that was exported."""
    path = Path(path).expanduser().absolute()
    root: Any = zipfile.Path(path) if path.is_file() else path
    spec = json.loads((root / "policy.json").read_text(encoding="utf-8"))
    if spec["format"] != FORMAT:
        raise ValueError(f"{path} has format {spec['format']}, not {FORMAT}; use the load_policy.py inside it")
    with np.load(io.BytesIO((root / "arrays.npz").read_bytes()), allow_pickle=False) as file:
        # NumPy's own files cannot hold bfloat16, so that the type is told apart from the bytes.
        arrays = {name: file[name].view(jax.numpy.dtype(dtype)) for name, dtype in spec["arrays"].items()}
    return Policy(spec, arrays, _read_program((root / "program.bin").read_bytes(), path / "vendor"))


class Policy:
    """Acts in one environment, or in a batch of them.

    `spec` has what was exported: `task`, `step`, `obs_space` and `act_space` (dtype, shape, low, high by name). For
    whole numbers `high` is the first that is too high; None is no bound. Of the observations only `spec["inputs"]` are
    looked at, the others may be missing.
    """

    def __init__(self, spec: dict, arrays: dict[str, np.ndarray], program: Any):
        self.spec = spec
        self._weights = jax.device_put(_part(arrays, "weights/"))
        self._initial = _part(arrays, "carry/")
        self._act = jax.jit(program.call)
        self._seed, self._call = spec["seed"], 0
        self._spaces = {name: spec["obs_space"][name] for name in spec["inputs"] if name != "is_first"}
        self._actions = [name for name in spec["act_space"] if name != "reset"]
        self.reset()

    def reset(self, batch_size: int | None = None, seed: int | None = None) -> None:
        """Begins an episode; with a batch size in that many environments, whose observations then come stacked.

        The noise that actions are drawn with goes on from one episode to the next; a seed begins it anew.
        """
        self._is_single = batch_size is None
        self._rows = 1 if batch_size is None else batch_size
        self._carry = {name: np.repeat(leaf, self._rows, 0) for name, leaf in self._initial.items()}
        self._is_first = np.ones(self._rows, bool)
        if seed is not None:
            self._seed, self._call = seed, 0

    def __call__(self, obs: Any) -> Any:
        """The actions for a dict of observations, as a dict.

        Where the policy looks at one observation only, that may come alone; a lone action is then returned alone too.
        In a batch, `is_first` among the observations tells where a new episode has begun.
        """
        is_lone = not isinstance(obs, Mapping)
        given = self._name(obs) if is_lone else obs
        inputs = {name: self._check(name, given) for name in self._spaces}
        is_first = self._is_first | np.asarray(given.get("is_first", False), bool)
        numbers = np.uint32(self._seed % 2**32), np.uint32(self._call % 2**32)
        self._carry, acts = self._act(self._weights, self._carry, {**inputs, "is_first": is_first}, *numbers)
        self._call += 1
        self._is_first = np.zeros(self._rows, bool)
        acts = {name: np.asarray(value)[0 if self._is_single else slice(None)] for name, value in acts.items()}
        return acts[self._actions[0]] if is_lone and len(acts) == 1 else acts

    def _name(self, value: Any) -> dict[str, Any]:
        if len(self._spaces) != 1:
            raise TypeError(f"the observation must be a dict with {', '.join(self._spaces)}")
        return {next(iter(self._spaces)): value}

    def _check(self, name: str, obs: Mapping[str, Any]) -> np.ndarray:
        if name not in obs:
            raise KeyError(f"the observation has no '{name}'; it has {', '.join(obs)}")
        space = self._spaces[name]
        value = np.asarray(obs[name], jax.numpy.dtype(space["dtype"]))
        value = value[None] if self._is_single else value
        if value.shape != (self._rows, *space["shape"]):
            lead = "" if self._is_single else f" in a batch of {self._rows}"
            raise ValueError(f"observation '{name}' has shape {np.shape(obs[name])}, but needs {space['shape']}{lead}")
        return value


def _part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _read_program(data: bytes, vendor: Path) -> Any:
    from jax import export

    # JAX reads its format with the package flatbuffers but does not bring it; a copy of it was exported too.
    sys.path.append(str(vendor))
    try:
        return export.deserialize(bytearray(data))
    finally:
        sys.path.remove(str(vendor))
