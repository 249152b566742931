"""Any Gymnasium environment as one of ours."""

from collections.abc import Iterable
from typing import Any

import elements
import numpy as np
from gymnasium import spaces

from dreamfleet.envs.contract import RENDER_MODE, RESET_SPACE, STEP_SPACES, Obs
from dreamfleet.envs.gymnasium_spaces import Leaf, find_leaves, is_image, join_action
from dreamfleet.envs.infos import InfoLogs, find_numbers
from dreamfleet.errors import EnvError


class FromGymnasium:
    """Wraps a Gymnasium environment: nested spaces are flattened, a lone space becomes `image`/`vector` or `action`.

    `info` names the numbers in Gymnasium's info that become `log/` keys.
    """

    def __init__(self, env: Any, seed: int | None = None, info: Iterable[str] | None = None):
        self._env = env
        self._seed = seed
        self._done = True
        self._obs_leaves = find_leaves(env.observation_space, obs_name(env.observation_space))
        self._act_leaves = find_leaves(env.action_space, "action")
        self._logs = InfoLogs(info)
        self.obs_space = convert_leaves(self._obs_leaves, STEP_SPACES) | self._logs.obs_space | STEP_SPACES
        self.act_space = convert_leaves(self._act_leaves, {"reset": RESET_SPACE}) | {"reset": RESET_SPACE}

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            obs, info = self._env.reset(seed=self._seed)
            self._seed = None  # later episodes continue the seeded generator
            self._done = False
            return self._obs(obs, info, 0.0, is_first=True)
        act = join_action(self._env.action_space, action, action_name(self._env.action_space))
        obs, reward, terminated, truncated, info = self._env.step(act)
        self._done = bool(terminated or truncated)
        return self._obs(obs, info, reward, is_last=self._done, is_terminal=bool(terminated))

    def render(self) -> np.ndarray | None:
        return self._env.render() if getattr(self._env, "render_mode", None) == RENDER_MODE else None

    def close(self) -> None:
        self._env.close()

    def _obs(self, obs, info, reward, is_first=False, is_last=False, is_terminal=False) -> Obs:
        flags = {"is_first": is_first, "is_last": is_last, "is_terminal": is_terminal}
        values = {leaf.key: leaf.read(obs) for leaf in self._obs_leaves}
        return {**values, **self._logs.read(info), "reward": np.float32(reward), **flags}


def probe_info(env: Any, seed: int | None) -> list[str]:
    """The numbers that `info` has at the start of an episode and after one step."""
    _, first = env.reset(seed=seed)
    lead = (env.num_envs,) if hasattr(env, "num_envs") else ()
    space = getattr(env, "single_action_space", env.action_space)
    leaves = find_leaves(space, "action")
    # No random action: what the environment does later must depend on the seed alone.
    act = {leaf.key: np.broadcast_to(_still(leaf.space), lead + leaf.space.shape) for leaf in leaves}
    second = env.step(join_action(space, act, action_name(space)))[-1]
    return sorted(find_numbers(first, lead) | find_numbers(second, lead))


def obs_name(space: spaces.Space) -> str:
    """The key of an observation space that has no names."""
    if isinstance(space, spaces.Tuple):
        return "obs"
    return "image" if is_image(space) else "vector"


def action_name(space: spaces.Space) -> str:
    """Where the names of an action space begin: nowhere if it has its own."""
    return "" if isinstance(space, spaces.Dict) else "action"


def convert_leaves(leaves: list[Leaf], taken: dict) -> dict:
    """Our spaces by key; refuses keys that are `taken`."""
    converted = {leaf.key: leaf.space for leaf in leaves}
    if names := sorted(converted.keys() & taken.keys()):
        raise EnvError(f"the Gymnasium space has {names}, which are reserved; rename them with a wrapper")
    if len(converted) < len(leaves):
        keys = sorted(leaf.key for leaf in leaves)
        raise EnvError(f"the Gymnasium space has two entries that would both get the same key; its keys are {keys}")
    return converted


def _still(space: elements.Space) -> np.ndarray:
    return np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
