"""What a replay is: the methods that the replay role and the streams call."""

from typing import Any, Protocol

import numpy as np

Batch = dict[str, np.ndarray]


class Replay(Protocol):
    """Steps of many environments, given back as sequences of `length` rows.

    `worker` names the environment that a step came from. `sample` returns arrays [batch, length, ...] with `stepid`
    (20 bytes a row: 16 of segment id, then the row as big-endian uint32; never reused) by which `update` writes back.
    `len()` is the number of sequence starts that can be sampled. A replay may offer `add_many(batch, workers)` to
    insert one row of each of several environments at once.
    """

    length: int

    def add(self, step: dict[str, Any], worker: int) -> None: ...

    def sample(self, batch: int, mode: str) -> Batch: ...

    def update(self, data: Batch) -> None: ...

    def save(self) -> Any: ...

    def load(self, data: Any) -> None: ...

    def stats(self) -> dict[str, float]: ...

    def __len__(self) -> int: ...
