"""Fresh steps and those of another store in one replay: a share of every batch is of the other."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamfleet.base.dimensions import STEP_ID_BYTES
from dreamfleet.errors import ReplayError
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.frozen import FrozenStore
from dreamfleet.replay.gather import join_sequences
from dreamfleet.replay.store import Store


class MixedStore:
    """A store whose batches have a share of sequences of another one, after its own.

    The share is exact over time; every batch has at least one sequence of its own. Sequences, steps and capacity are
    counted without the other's. Of states that an agent keeps with its steps the other has none, or those of another
    agent: `context` burn-in steps of its sequences, and the one after them, are marked as first, as where nothing came
    before.
    """

    def __init__(self, fresh: Store, other: FrozenStore, share: float, context: int):
        self.length = fresh.length
        self.truncates = fresh.truncates
        self._fresh, self._other = fresh, other
        self._share, self._context = share, context
        self._dealt: Counter[str] = Counter()  # sequences, by mode
        self._dealt_other: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._fresh)

    @property
    def capacity(self) -> int:
        return self._fresh.capacity

    @property
    def steps(self) -> int:
        return self._fresh.steps

    @property
    def note(self) -> bytes:
        return self._fresh.note

    @property
    def oldest(self) -> int:
        return self._fresh.oldest

    def add(self, step: dict[str, Any], worker: int) -> None:
        self._fresh.add(step, worker)

    def add_many(self, batch: Batch, workers: Sequence[int], note: bytes | None = None) -> None:
        self._fresh.add_many(batch, workers, note)

    def sample(self, batch: int, mode: str = "train") -> Batch:
        count = self._count_other(batch, mode)
        parts = [self._fresh.sample(batch - count, mode)]
        if count:
            parts.append(self._mark(self._other.sample(count, mode)))
        return join_sequences(parts)

    def sample_references(self, batch: int, mode: str = "train") -> Batch:
        count = self._count_other(batch, mode)
        parts = [self._fresh.sample_references(batch - count, mode)]
        if count:
            parts.append(self._mark(self._other.sample_references(count, mode)))
        return join_sequences(parts)

    def paths(self, step_ids: np.ndarray) -> dict[str, str]:
        """Own segments by serial, those of the other by their whole id in hexadecimal digits."""
        is_other = self._is_other(step_ids)
        prefix = self._other.store_id.hex()
        others = self._other.paths(step_ids[is_other])
        named = {f"{prefix}{int(serial):016x}": path for serial, path in others.items()}
        return {**self._fresh.paths(step_ids[~is_other]), **named}

    def update(self, data: Batch) -> None:
        """Hands each row on to the store that it is of."""
        try:
            step_ids = np.asarray(data["stepid"]).reshape(-1, STEP_ID_BYTES)
            is_other = self._is_other(step_ids)
            rows = {key: np.asarray(value).reshape(len(step_ids), -1) for key, value in data.items()}
        except ValueError as error:
            raise ReplayError(f"the arrays of an update do not fit its step ids: {error}") from error
        for store, mask in ((self._fresh, ~is_other), (self._other, is_other)):
            if mask.any():
                store.update({key: value[mask] for key, value in rows.items()})

    def save(self) -> dict[str, Any]:
        dealt = {"all": dict(self._dealt), "other": dict(self._dealt_other)}
        return {**self._fresh.save(), "mix": {**self._other.save(), "dealt": dealt}}

    def load(self, data: dict[str, Any]) -> None:
        self._fresh.load(data)
        if mix := data.get("mix"):
            self._other.load(mix)
            self._dealt, self._dealt_other = (Counter(mix["dealt"][key]) for key in ("all", "other"))

    def stats(self) -> dict[str, float]:
        other = {f"mix_{key}": value for key, value in self._other.stats().items()}
        return {**self._fresh.stats(), **other, "mix_sampled": self._dealt_other["train"]}

    def close(self) -> None:
        self._fresh.close()
        self._other.close()

    def _count_other(self, batch: int, mode: str) -> int:
        """How many sequences of the next batch are of the other store."""
        self._dealt[mode] += batch
        due = math.floor(self._dealt[mode] * self._share + 1e-6) - self._dealt_other[mode]
        count = max(0, min(due, batch - 1))
        self._dealt_other[mode] += count
        return count

    def _mark(self, sequences: Batch) -> Batch:
        sequences["is_first"][:, : self._context + 1] = True
        return sequences

    def _is_other(self, step_ids: np.ndarray) -> np.ndarray:
        """Which rows are of the other store, in the shape that the ids have."""
        other = np.frombuffer(self._other.store_id, np.uint8)
        return (step_ids[..., : len(other)] == other).all(-1)
