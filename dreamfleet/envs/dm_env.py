"""Any environment with dm_env's interface as one of ours."""

from collections.abc import Iterator, Mapping
from typing import Any

import elements
import numpy as np

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES, Obs, can_hold
from dreamfleet.errors import EnvError

INT32 = np.iinfo(np.int32)
RENDER_SIZE = (240, 320)


class FromDmEnv:
    """Wraps a dm_env environment: nested specs are flattened, a lone spec becomes `image`/`vector` or `action`.

    dm_env has no seeds: give the environment its own when it is made.
    """

    def __init__(self, env: Any):
        self._env = env
        self._done = True
        spec, self._act_spec = env.observation_spec(), env.action_spec()
        self._obs_name = "image" if getattr(spec, "dtype", None) == np.uint8 and len(spec.shape) > 1 else "vector"
        # Sensors that a robot does not have are there without numbers.
        self.obs_space = {k: _convert(k, s) for k, s in _flatten(spec, self._obs_name) if 0 not in s.shape}
        if taken := sorted(self.obs_space.keys() & STEP_SPACES.keys()):
            raise EnvError(f"the dm_env observation has {taken}, which are reserved; rename them with a wrapper")
        self._dtypes = {k: s.dtype for k, s in self.obs_space.items()}
        self.obs_space |= STEP_SPACES
        self.act_space = {k: _convert(k, s) for k, s in _flatten(self._act_spec, "action")} | {"reset": RESET_SPACE}

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            time_step = self._env.reset()
        else:
            time_step = self._env.step(_join(self._act_spec, action, "" if _has_names(self._act_spec) else "action"))
        self._done = bool(time_step.last())
        return self._obs(time_step)

    def render(self) -> np.ndarray | None:
        physics = getattr(self._env, "physics", None)  # of dm_control
        return physics.render(*RENDER_SIZE, camera_id=0) if physics else None

    def close(self) -> None:
        self._env.close()

    def _obs(self, time_step: Any) -> Obs:
        entries = dict(_flatten(time_step.observation, self._obs_name))
        return {
            **{k: _cast(k, np.asarray(entries[k]), dtype) for k, dtype in self._dtypes.items()},
            "reward": np.float32(time_step.reward or 0.0),
            "is_first": bool(time_step.first()),
            "is_last": self._done,
            "is_terminal": self._done and time_step.discount == 0,
        }


def _cast(key: str, value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if value.dtype != dtype and not can_hold(dtype, value.dtype):
        raise EnvError(f"observation '{key}' is {value.dtype}, but its spec says {dtype}")
    return value.astype(dtype, copy=False)


def _has_names(tree: Any) -> bool:
    return isinstance(tree, Mapping)


def _flatten(tree: Any, name: str, is_root: bool = True) -> Iterator[tuple[str, Any]]:
    if _has_names(tree):
        for key, value in tree.items():
            yield from _flatten(value, key if is_root else f"{name}/{key}", False)
    elif isinstance(tree, (list, tuple)):
        for i, value in enumerate(tree):
            yield from _flatten(value, f"{name}/{i}", False)
    else:
        yield name, tree


def _join(spec: Any, action: Mapping[str, Any], name: str) -> Any:
    if _has_names(spec):
        return {k: _join(s, action, f"{name}/{k}" if name else k) for k, s in spec.items()}
    if isinstance(spec, (list, tuple)):
        return [_join(s, action, f"{name}/{i}") for i, s in enumerate(spec)]
    return np.asarray(action[name]).astype(spec.dtype)


def _convert(key: str, spec: Any) -> elements.Space:
    dtype = np.dtype(spec.dtype)
    low, high = getattr(spec, "minimum", None), getattr(spec, "maximum", None)
    if dtype.kind == "b":
        return elements.Space(bool, spec.shape)
    if dtype.kind == "f":
        return elements.Space(np.float32, spec.shape, low, high)
    if dtype == np.uint8 and len(spec.shape) in (2, 3):
        return elements.Space(np.uint8, spec.shape)
    if dtype.kind in "iu":
        low, high = (INT32.min, INT32.max) if low is None else (np.asarray(low, np.int64), np.asarray(high, np.int64))
        return elements.Space(np.int32, spec.shape, low, np.asarray(high) + 1)
    raise EnvError(f"'{key}' has the spec {spec}, which is not numeric; drop it with a wrapper")
