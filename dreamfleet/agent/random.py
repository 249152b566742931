"""An agent that acts at random and learns nothing: a baseline, and load for the machinery around it."""

import json
from collections.abc import Iterable, Iterator

import elements
import numpy as np

from dreamfleet.agent.contract import Batch


class RandomAgent:
    """Draws every action uniformly from its space (normally where the space is unbounded)."""

    def __init__(
        self, obs_space: dict[str, elements.Space], act_space: dict[str, elements.Space], config: elements.Config
    ):
        self.obs_space = obs_space
        self._spaces = {k: s for k, s in act_space.items() if k != "reset"}
        self._rng = np.random.default_rng(config.get("seed", 0))

    def init_policy(self, batch_size: int) -> tuple:
        return ()

    def init_train(self, batch_size: int) -> tuple:
        return ()

    def init_report(self, batch_size: int) -> tuple:
        return ()

    def policy(self, carry: tuple, obs: Batch, mode: str = "train") -> tuple[tuple, Batch, Batch]:
        batch_size = len(obs["is_first"])
        return carry, {k: self._sample(s, batch_size) for k, s in self._spaces.items()}, {}

    def train(self, carry: tuple, data: Batch) -> tuple[tuple, dict, dict]:
        return carry, {}, {"reward": data["reward"].mean()}

    def report(self, carry: tuple, data: Batch) -> tuple[tuple, dict]:
        return carry, {"reward": data["reward"].mean()}

    def stream(self, source: Iterable[Batch]) -> Iterator[Batch]:
        return iter(source)

    def save(self) -> dict:
        return {"rng": json.dumps(self._rng.bit_generator.state)}

    def load(self, data: dict, regex: str | None = None) -> None:
        self._rng.bit_generator.state = json.loads(data["rng"])

    def _sample(self, space: elements.Space, batch_size: int) -> np.ndarray:
        shape = (batch_size, *space.shape)
        if space.discrete:
            high = 2 if space.dtype == bool else space.high
            return self._rng.integers(space.low, high, shape).astype(space.dtype)
        if np.isfinite(space.low).all() and np.isfinite(space.high).all():
            return self._rng.uniform(space.low, space.high, shape).astype(space.dtype)
        return np.clip(self._rng.normal(size=shape), space.low, space.high).astype(space.dtype)
