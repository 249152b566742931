"""Gymnasium's vector environments: K environments behind one object, stepped by one call."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES, Obs
from dreamfleet.envs.gymnasium import action_name, convert_leaves, obs_name
from dreamfleet.envs.gymnasium_spaces import find_leaves, join_action
from dreamfleet.envs.infos import InfoLogs
from dreamfleet.errors import EnvError


class FromGymnasiumVector:
    """Wraps a VectorEnv as `num_envs` environments: spaces are those of one, actions and observations have all of them.

    Only the autoreset mode NEXT_STEP (Gymnasium's default) shows the last observation of an episode and the first of
    the next as two steps, as the contract asks.
    """

    def __init__(self, env: Any, seed: int | None = None, info: Iterable[str] | None = None):
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if AutoresetMode(mode) != AutoresetMode.NEXT_STEP:
            raise EnvError(
                f"{type(env).__name__} has the autoreset mode {AutoresetMode(mode).name}, which hides the end of an "
                "episode or leaves resets to the caller; make it with autoreset_mode=AutoresetMode.NEXT_STEP"
            )
        self.num_envs: int = env.num_envs
        self._env = env
        self._seed = seed
        self._done = np.ones(self.num_envs, bool)
        self._is_started = False
        self._act_space = env.single_action_space
        self._obs_leaves = find_leaves(env.single_observation_space, obs_name(env.single_observation_space))
        self._act_leaves = find_leaves(self._act_space, "action")
        self._logs = InfoLogs(info, (self.num_envs,))
        self.obs_space = convert_leaves(self._obs_leaves, STEP_SPACES) | self._logs.obs_space | STEP_SPACES
        self.act_space = convert_leaves(self._act_leaves, {"reset": RESET_SPACE}) | {"reset": RESET_SPACE}

    def step(self, action: dict) -> dict:
        reset = np.asarray(action["reset"], bool)
        if reset.all() or not self._is_started:
            obs, info = self._env.reset(seed=self._seed)
            self._seed = None  # later episodes continue the seeded generators
            self._is_started = True
            none = np.zeros(self.num_envs, bool)
            return self._obs(obs, info, none, ~none, none, none)
        is_first = self._done
        act = join_action(self._act_space, action, action_name(self._act_space))
        obs, reward, terminated, truncated, info = self._env.step(act)
        cut = reset & ~is_first
        if cut.any():
            # These leave an episode before its end: their step does not count, the new episode does.
            obs, _ = self._env.reset(options={"reset_mask": cut})
            reward, terminated, truncated = np.where(cut, 0, reward), terminated & ~cut, truncated & ~cut
        return self._obs(obs, info, reward, is_first | cut, terminated, truncated)

    def close(self) -> None:
        self._env.close()

    def _obs(self, obs, info, reward, is_first, terminated, truncated) -> Obs:
        self._done = terminated | truncated
        flags = {"is_first": is_first, "is_last": self._done, "is_terminal": terminated}
        values = {leaf.key: leaf.read(obs) for leaf in self._obs_leaves}
        return {**values, **self._logs.read(info), "reward": np.asarray(reward, np.float32), **flags}
