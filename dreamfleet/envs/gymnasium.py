"""Any Gymnasium environment as one of ours."""

from typing import Any

import elements
import numpy as np
from gymnasium import spaces

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.errors import EnvError

INT32 = np.iinfo(np.int32)
COUNTED = (spaces.Discrete, spaces.MultiDiscrete)  # begin at `start` there and at 0 here


class FromGymnasium:
    """Wraps a Gymnasium environment: dict spaces are flattened, a lone space becomes `image`/`vector` or `action`."""

    def __init__(self, env: Any, seed: int | None = None):
        self._env = env
        self._seed = seed
        self._done = True
        self._obs_spaces = _named_spaces(env.observation_space, _obs_name(env.observation_space))
        self._act_spaces = _named_spaces(env.action_space, "action")
        self._nested_obs = isinstance(env.observation_space, spaces.Dict)
        self._nested_act = isinstance(env.action_space, spaces.Dict)
        _refuse_names(self._obs_spaces.keys() & STEP_SPACES.keys())
        _refuse_names(self._act_spaces.keys() & {"reset"})
        self.obs_space = {k: _convert(k, s) for k, s in self._obs_spaces.items()} | STEP_SPACES
        self.act_space = {k: _convert(k, s) for k, s in self._act_spaces.items()} | {"reset": RESET_SPACE}

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            obs, _ = self._env.reset(seed=self._seed)
            self._seed = None  # later episodes continue the seeded generator
            self._done = False
            return self._obs(obs, 0.0, is_first=True)
        entries = {k: _to_gymnasium(action[k], s) for k, s in self._act_spaces.items()}
        act = _nest(entries, self._env.action_space) if self._nested_act else entries["action"]
        obs, reward, terminated, truncated, _ = self._env.step(act)
        self._done = bool(terminated or truncated)
        return self._obs(obs, reward, is_last=self._done, is_terminal=bool(terminated))

    def close(self) -> None:
        self._env.close()

    def _obs(self, obs, reward, is_first=False, is_last=False, is_terminal=False) -> dict:
        entries = _flatten(obs) if self._nested_obs else {next(iter(self._obs_spaces)): obs}
        values = {k: _from_gymnasium(entries[k], s, self.obs_space[k].dtype) for k, s in self._obs_spaces.items()}
        flags = {"is_first": is_first, "is_last": is_last, "is_terminal": is_terminal}
        return {**values, "reward": np.float32(reward), **flags}


def _obs_name(space: spaces.Space) -> str:
    is_image = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3
    return "image" if is_image else "vector"


def _named_spaces(space: spaces.Space, name: str) -> dict[str, spaces.Space]:
    if isinstance(space, spaces.Dict):
        return _flatten(space.spaces)
    return {name: space}


def _flatten(tree, prefix: str = "") -> dict:
    items = tree.spaces.items() if isinstance(tree, spaces.Dict) else tree.items()
    result = {}
    for key, value in items:
        if isinstance(value, (dict, spaces.Dict)):
            result.update(_flatten(value, f"{prefix}{key}/"))
        else:
            result[f"{prefix}{key}"] = value
    return result


def _nest(entries: dict, space: spaces.Dict, prefix: str = "") -> dict:
    return {
        k: _nest(entries, s, f"{prefix}{k}/") if isinstance(s, spaces.Dict) else entries[f"{prefix}{k}"]
        for k, s in space.spaces.items()
    }


def _refuse_names(names: set[str]) -> None:
    if names:
        raise EnvError(f"the Gymnasium space has {sorted(names)}, which we use ourselves; rename them with a wrapper")


def _convert(key: str, space: spaces.Space) -> elements.Space:
    if isinstance(space, spaces.Discrete):
        return elements.Space(np.int32, (), 0, int(space.n))
    if isinstance(space, spaces.MultiBinary):
        return elements.Space(np.int32, space.shape, 0, 2)
    if isinstance(space, spaces.MultiDiscrete):
        return elements.Space(np.int32, space.shape, 0, space.nvec)
    if isinstance(space, spaces.Box):
        if np.issubdtype(space.dtype, np.floating):
            return elements.Space(np.float32, space.shape, space.low, space.high)
        # Not in the space's own type: its largest value may have none above it.
        low, high = (np.clip(x.astype(float), INT32.min, INT32.max).astype(np.int64) for x in (space.low, space.high))
        return elements.Space(np.uint8 if space.dtype == np.uint8 else np.int32, space.shape, low, high + 1)
    raise EnvError(
        f"'{key}' has the space {space}, which cannot be turned into arrays; wrap the environment so that it has a "
        "Box, Discrete, MultiDiscrete, MultiBinary or Dict space there"
    )


def _to_gymnasium(value, space: spaces.Space):
    if isinstance(space, COUNTED):
        value = np.asarray(value) + space.start
    return int(value) if isinstance(space, spaces.Discrete) else np.asarray(value, space.dtype)


def _from_gymnasium(value, space: spaces.Space, dtype: np.dtype) -> np.ndarray:
    if isinstance(space, COUNTED):
        value = np.asarray(value) - space.start
    return np.asarray(value, dtype)
