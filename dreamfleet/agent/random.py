"""An agent that acts at random and learns nothing: a baseline, and load for the machinery around it."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import elements
import numpy as np

from dreamfleet.agent.contract import Batch
from dreamfleet.options import AgentOptions


class RandomAgent:
    """Draws every action uniformly from its space (normally where the space is unbounded)."""

    def __init__(
        self, obs_space: dict[str, elements.Space], act_space: dict[str, elements.Space], options: AgentOptions
    ):
        self.obs_space, self.act_space = obs_space, act_space
        self._seed = options.seed
        self._rng = np.random.default_rng(options.seed)
        self._samplers = {key: self._make_sampler(space) for key, space in act_space.items() if key != "reset"}

    def init_policy(self, batch_size: int) -> tuple:
        return ()

    def init_train(self, batch_size: int) -> tuple:
        return ()

    def init_report(self, batch_size: int) -> tuple:
        return ()

    def policy(self, carry: tuple, obs: Batch, mode: str = "train") -> tuple[tuple, Batch, Batch]:
        batch_size = len(obs["is_first"])
        return carry, {key: sample(batch_size) for key, sample in self._samplers.items()}, {}

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

    def seed_policy(self, number: int) -> None:
        self._rng.bit_generator.state = np.random.default_rng([self._seed, number]).bit_generator.state

    def _make_sampler(self, space: elements.Space) -> Callable[[int], np.ndarray]:
        rng, shape, dtype = self._rng, space.shape, np.dtype(space.dtype)
        low, high = map(_one_or_all, (space.low, space.high))
        if space.discrete:
            high = 2 if dtype.kind == "b" else high
            return lambda rows: rng.integers(low, high, (rows, *shape)).astype(dtype)
        if np.isfinite(low).all() and np.isfinite(high).all():
            return lambda rows: rng.uniform(low, high, (rows, *shape)).astype(dtype)
        return lambda rows: np.clip(rng.normal(size=(rows, *shape)), low, high).astype(dtype)


def _one_or_all(bounds: np.ndarray) -> Any:
    """The one number that all bounds are, with which drawing is much quicker, or else the bounds."""
    first = np.asarray(bounds).flat[0]
    return first.item() if (bounds == first).all() else bounds
