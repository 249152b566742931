"""K environments stepped together into arrays with a leading K, each rebuilt when it raises."""

import logging
from collections.abc import Callable, Sequence

import numpy as np

from dreamfleet.envs.contract import Env, check_spaces, reset_action
from dreamfleet.errors import EnvError

log = logging.getLogger("dreamfleet.envs")

MAX_FAILURES = 5


class EnvGroup:
    """Owns the environments of one worker process.

    An environment that raises is logged with its traceback, rebuilt and starts a new episode. One that cannot even start,
    or raises `MAX_FAILURES` times without finishing an episode, is beyond help: the error leaves `step`.
    """

    def __init__(self, make_env: Callable[[int], Env], env_ids: Sequence[int]):
        self.rebuilds = 0
        self._make_env = make_env
        self._ids = list(env_ids)
        self._envs = [self._build(env_id) for env_id in self._ids]
        self._failures = [0] * len(self._ids)  # since the last episode that was finished
        self._spaces = self._envs[0].obs_space
        self._obs = self._allocate()

    def reset_actions(self) -> dict[str, np.ndarray]:
        """Actions that start a new episode everywhere."""
        actions = [reset_action(env) for env in self._envs]
        return {k: np.stack([a[k] for a in actions]) for k in actions[0]}

    def step(self, acts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Steps every environment with its row of `acts`; the arrays returned are reused by the next call."""
        for i in range(len(self._envs)):
            self._step_one(i, {k: v[i] for k, v in acts.items()})
        return self._obs

    def renew_buffers(self) -> None:
        """Gives up the arrays of the last step, for a caller that may still be sending them."""
        self._obs = self._allocate()

    def close(self) -> None:
        for i in range(len(self._envs)):
            self._discard(i)

    def _step_one(self, i: int, action: dict) -> None:
        try:
            self._store(i, self._envs[i].step(action))
            if self._obs["is_last"][i]:
                self._failures[i] = 0
        except Exception:
            self.rebuilds += 1
            self._failures[i] += 1
            if self._failures[i] >= MAX_FAILURES:
                log.error("environment %d raised %d times in a row", self._ids[i], self._failures[i])
                raise
            log.exception("environment %d raised and is rebuilt", self._ids[i])
            self._discard(i)
            self._envs[i] = self._build(self._ids[i])
            self._store(i, self._envs[i].step(reset_action(self._envs[i])))

    def _store(self, i: int, obs: dict) -> None:
        for key, buffer in self._obs.items():
            try:
                value = obs[key]
            except KeyError:
                raise EnvError(
                    f"environment {self._ids[i]}: the observation has no '{key}'; it has {sorted(obs)}"
                ) from None
            if np.shape(value) != buffer.shape[1:]:
                raise EnvError(
                    f"environment {self._ids[i]}: observation '{key}' has shape {np.shape(value)}, "
                    f"but its space says {buffer.shape[1:]}"
                )
            buffer[i] = value

    def _build(self, env_id: int) -> Env:
        env = self._make_env(env_id)
        check_spaces(env)
        return env

    def _discard(self, i: int) -> None:
        try:
            self._envs[i].close()
        except Exception:
            log.exception("environment %d raised on close", self._ids[i])

    def _allocate(self) -> dict[str, np.ndarray]:
        return {k: np.zeros((len(self._envs), *s.shape), s.dtype) for k, s in self._spaces.items()}
