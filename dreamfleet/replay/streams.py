"""Turns a replay's sampled sequences into the batches that a learner asks for."""

from collections.abc import Iterator

import numpy as np

from dreamfleet.replay.contract import Batch, Replay
from dreamfleet.replay.references import ReferenceBatch


def consecutive_batches(
    replay: Replay, mode: str, *, batch_size: int, length: int, consec: int, context: int
) -> Iterator[Batch]:
    """Yields each sampled sequence as `consec` chunks of `length` rows (+ `context` in front), in order.

    Chunk i starts where chunk i - 1 ended, its context being that chunk's last rows, and is numbered in `consec`.
    """
    needed = consec * length + context
    assert needed <= replay.length, (needed, replay.length)
    is_shared = consec > 1 and context > 0  # chunks share their context, and a learner may change what it gets
    while True:
        batch = replay.sample(batch_size, mode)
        for index in range(consec):
            chunk = slice_steps(batch, index * length, (index + 1) * length + context)
            if is_shared and not isinstance(chunk, ReferenceBatch):
                chunk = {k: v.copy() for k, v in chunk.items()}
            chunk["consec"] = np.full((batch_size, length + context), index, np.int32)
            yield chunk


def slice_steps(batch: Batch, start: int, stop: int) -> Batch:
    """The steps from `start` to `stop` of each sequence of a batch, which may be one of references."""
    if isinstance(batch, ReferenceBatch):
        return batch.steps(start, stop)
    return {k: v[:, start:stop] for k, v in batch.items()}
