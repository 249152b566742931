"""A trained agent acts in several environments in one process, in step: what `eval` and `record` are made of."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dreamfleet.agent.contract import Agent, Batch
from dreamfleet.base.keys import without_logs
from dreamfleet.envs import EnvGroup
from dreamfleet.envs.contract import count_envs
from dreamfleet.metrics import Episode, EpisodeTracker
from dreamfleet.roles.actor.carries import make_carries
from dreamfleet.roles.transitions import make_transition


class Rollout:
    """Owns `count` environments (more, if the task makes several at once and the count is not a multiple of them)."""

    def __init__(self, agent: Agent, make_env: Callable[[int], Any], count: int, mode: str = "eval"):
        self._mode = mode  # of the policy
        first = make_env(0)
        at_once = count_envs(first) or 1
        made = iter([first])
        self.has_images = any(space.dtype == np.uint8 and len(space.shape) == 3 for space in first.obs_space.values())
        self.env_ids = list(range(math.ceil(count / at_once) * at_once))
        self._envs = EnvGroup(lambda env_id: next(made, None) or make_env(env_id), self.env_ids)
        self._carries = make_carries(agent, math.inf, len(self.env_ids), len(self.env_ids))

    def steps(self) -> Iterator[Batch]:
        """One row of each environment at a time, without end; the arrays are reused for the next rows."""
        acts = self._envs.reset_actions()
        while True:
            obs = self._envs.step(acts)
            acts, outs = self._carries.policy(self.env_ids, without_logs(obs), self._mode)
            yield make_transition(self.env_ids, True, obs, acts, outs)
            acts = {**acts, "reset": obs["is_last"]}

    def close(self) -> None:
        self._envs.close()

    def __enter__(self) -> "Rollout":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def play(rollout: Rollout, episodes: int) -> Iterator[Episode]:
    """Yields episodes as they end.

    Each environment plays a share that is fixed beforehand. To take whichever episodes end first would prefer the short
    ones, which are often the bad or the good ones.
    """
    share, rest = divmod(episodes, len(rollout.env_ids))
    left = {env_id: share + (env_id < rest) for env_id in rollout.env_ids}
    tracker = EpisodeTracker(math.inf)
    for rows in rollout.steps():
        for episode in tracker.add(_numbers(rows)):
            if left[episode.env_id]:
                left[episode.env_id] -= 1
                yield episode
        if not any(left.values()):
            return


def _numbers(rows: Batch) -> Batch:
    return {key: value for key, value in rows.items() if np.ndim(value) == 1}
