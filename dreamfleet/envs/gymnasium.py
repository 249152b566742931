"""Any Gymnasium environment as one of ours."""

from typing import Any

import elements
import numpy as np
from gymnasium import spaces

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.errors import EnvError


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
        self.obs_space = {k: _convert(k, s) for k, s in self._obs_spaces.items()} | STEP_SPACES
        self.act_space = {k: _convert(k, s) for k, s in self._act_spaces.items()} | {"reset": RESET_SPACE}

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            obs, _ = self._env.reset(seed=self._seed)
            self._seed = None  # later episodes continue the seeded generator
            self._done = False
            return self._obs(obs, 0.0, is_first=True)
        entries = {k: _to_gymnasium(action[k], s) for k, s in self._act_spaces.items()}
        act = _nest(entries) if self._nested_act else entries["action"]
        obs, reward, terminated, truncated, _ = self._env.step(act)
        self._done = bool(terminated or truncated)
        return self._obs(obs, reward, is_last=self._done, is_terminal=bool(terminated))

    def close(self) -> None:
        self._env.close()

    def _obs(self, obs, reward, is_first=False, is_last=False, is_terminal=False) -> dict:
        entries = _flatten(obs) if self._nested_obs else {next(iter(self._obs_spaces)): obs}
        values = {k: np.asarray(entries[k], self.obs_space[k].dtype) for k in self._obs_spaces}
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


def _nest(entries: dict) -> dict:
    result: dict = {}
    for key, value in entries.items():
        *parents, leaf = key.split("/")
        node = result
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return result


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
        if space.dtype == np.uint8:
            return elements.Space(np.uint8, space.shape)
        return elements.Space(np.int32, space.shape, space.low, space.high + 1)
    raise EnvError(f"'{key}' has the space {space}, which cannot be turned into arrays; wrap the environment so that it has a "
                   "Box, Discrete, MultiDiscrete, MultiBinary or Dict space there")


def _to_gymnasium(value, space: spaces.Space):
    if isinstance(space, spaces.Discrete):
        return int(value) + int(space.start)
    return np.asarray(value, space.dtype)
