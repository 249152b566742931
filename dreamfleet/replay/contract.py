"""What a replay is: the methods that the replay role and the streams call, and what a replay may offer beyond them."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dreamfleet.base.arrays import Batch


class Replay(Protocol):
    """Steps of many environments, given back as sequences of `length` rows.

    `worker` names the environment that a step came from. `sample` returns arrays [batch, length, ...] with `stepid`
    (20 bytes a row: 16 of segment id, then the row as big-endian uint32; never reused) by which `update` writes back.
    `len()` is the number of sequence starts that can be sampled.
    """

    length: int

    def add(self, step: dict[str, Any], worker: int) -> None: ...

    def sample(self, batch: int, mode: str) -> Batch: ...

    def update(self, data: Batch) -> None: ...

    def save(self) -> Any: ...

    def load(self, data: Any) -> None: ...

    def stats(self) -> dict[str, float]: ...

    def __len__(self) -> int: ...


# Each of the following is optional. Whether a replay has one is asked with isinstance, once: it looks at names only.


@runtime_checkable
class AddsMany(Protocol):
    """Inserts row i of a batch for `workers[i]`, each worker at most once in a call."""

    def add_many(self, batch: Batch, workers: Sequence[int]) -> None: ...


@runtime_checkable
class KeepsNotes(Protocol):
    """Commits a note, opaque bytes of the caller, together with rows: after a crash both are there, or neither is.

    `note` is the last that was committed, empty at first. A worker may come several times in a call, in order.
    """

    @property
    def note(self) -> bytes: ...

    def add_many(self, batch: Batch, workers: Sequence[int], note: bytes | None = None) -> None: ...


@runtime_checkable
class GivesReferences(Protocol):
    """Lets another process of the machine map the rows of a sampled batch instead of receiving them.

    `sample_references` is `sample` with only `stepid`, and in `is_first` the rows that are to be marked as first.
    `paths` says where the segments of step ids are (serial -> path), `oldest` the lowest serial that still exists. A
    batch may end with sequences of another store, whose segments never go: they are named by their id in hexadecimal.
    """

    length: int

    @property
    def oldest(self) -> int: ...

    def sample_references(self, batch: int, mode: str) -> Batch: ...

    def paths(self, step_ids: np.ndarray) -> dict[str, str]: ...


@runtime_checkable
class Truncates(Protocol):
    """Says whether `load` drops the rows that came after `save`, as an exact repetition of a run needs."""

    truncates: bool


@runtime_checkable
class CountsSteps(Protocol):
    """Knows how many steps it holds, where `len()` is the number of sequences."""

    @property
    def steps(self) -> int: ...


@runtime_checkable
class HasCapacity(Protocol):
    """Knows how many steps it can hold; 0 until that is decided."""

    capacity: int


@runtime_checkable
class Closes(Protocol):
    """Has something to release when the process ends in order."""

    def close(self) -> None: ...
