"""Turns a replay's sampled sequences into the batches that a learner asks for."""

from collections.abc import Iterator

import numpy as np

from dreamfleet.replay.contract import Batch, Replay


def consecutive_batches(
    replay: Replay, mode: str, *, batch_size: int, length: int, consec: int, context: int
) -> Iterator[Batch]:
    """Yields each sampled sequence as `consec` chunks of `length` rows (+ `context` in front), in order.

    Chunk i starts where chunk i - 1 ended, its context being that chunk's last rows, and is numbered in `consec`.
    """
    needed = consec * length + context
    assert needed <= replay.length, (needed, replay.length)
    while True:
        rows = replay.sample(batch_size, mode)
        for index in range(consec):
            start = index * length
            chunk = {k: v[:, start : start + length + context] for k, v in rows.items()}
            if consec > 1 and context:  # chunks share their context, and a learner may change what it gets
                chunk = {k: v.copy() for k, v in chunk.items()}
            chunk["consec"] = np.full(chunk["is_first"].shape, index, np.int32)
            yield chunk
