"""One replay of the role, ours or a user's, with what it offers beyond the contract, and the rows that go into it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dreamfleet.errors import BadRequest, NoSpace, ReplayError
from dreamfleet.replay import Batch, Replay
from dreamfleet.replay.contract import (
    AddsMany,
    Closes,
    CountsSteps,
    GivesReferences,
    HasCapacity,
    KeepsNotes,
    Truncates,
)


class EnvRows(NamedTuple):
    """Row i of every array is a step of environment `env_ids[i]`."""

    batch: Batch
    env_ids: list[int]

    def select(self, mask: np.ndarray) -> "EnvRows":
        if mask.all():
            return self
        env_ids = [env_id for env_id, is_in in zip(self.env_ids, mask, strict=True) if is_in]
        return EnvRows({k: v[mask] for k, v in self.batch.items()}, env_ids)

    def turns(self) -> Iterator["EnvRows"]:
        """Parts of the rows, in order, in which every environment is there once."""
        start, seen = 0, set()
        for i, env_id in enumerate(self.env_ids):
            if env_id in seen:
                yield self._part(start, i)
                start, seen = i, set()
            seen.add(env_id)
        yield self._part(start, len(self.env_ids)) if start else self

    def _part(self, start: int, end: int) -> "EnvRows":
        return EnvRows({k: v[start:end] for k, v in self.batch.items()}, self.env_ids[start:end])


class Buffer:
    """A replay and its optional abilities, which are looked up once: it takes long.

    They are the replay itself, which is false in a condition while it is empty.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        self.references = replay if isinstance(replay, GivesReferences) else None
        self._notes = replay if isinstance(replay, KeepsNotes) else None
        self._many = replay if isinstance(replay, AddsMany) else None
        self._sized = replay if isinstance(replay, HasCapacity) else None
        self._counted = replay if isinstance(replay, CountsSteps) else None

    def __len__(self) -> int:
        return len(self.replay)

    @property
    def steps(self) -> int:
        """Held at the moment, as far as the replay knows: the sequences that can be sampled else."""
        return self._counted.steps if self._counted is not None else len(self.replay)

    @property
    def capacity(self) -> int:
        """In steps, as far as the replay knows: 0 else."""
        return int(self._sized.capacity or 0) if self._sized is not None else 0

    @property
    def note(self) -> bytes | None:
        """What was committed with the last rows, by a replay that keeps notes."""
        return self._notes.note if self._notes is not None else None

    def insert(self, rows: EnvRows, note: bytes) -> None:
        """Adds rows in order, together with the note where the replay keeps notes."""
        try:
            if self._notes is not None:
                self._notes.add_many(rows.batch, rows.env_ids, note)
            elif self._many is not None:
                for turn in rows.turns():
                    self._many.add_many(turn.batch, turn.env_ids)
            else:
                for i, env_id in enumerate(rows.env_ids):
                    self.replay.add({k: v[i] for k, v in rows.batch.items()}, env_id)
        except NoSpace:
            raise
        except ReplayError as error:
            raise BadRequest(str(error)) from error

    def update(self, data: Batch) -> None:
        """Writes refreshed values back."""
        try:
            self.replay.update(data)
        except ReplayError as error:
            raise BadRequest(str(error)) from error

    def load(self, state: Any) -> bool:
        """Continues from saved state; returns whether rows that came after it are gone."""
        self.replay.load(state)
        return isinstance(self.replay, Truncates) and self.replay.truncates

    def close(self) -> None:
        if isinstance(self.replay, Closes):
            self.replay.close()
