"""Step ids, and the rows that they stand for: gathered from mapped segments, in this process or in the learner's."""

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dreamfleet.base.dimensions import STEP_ID_BYTES
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.segment import Segment

STEP_ID = np.dtype([("store", "<u8"), ("serial", ">u8"), ("row", ">u4")])  # the segment's id is the first two
assert STEP_ID.itemsize == STEP_ID_BYTES

PATIENCE_S = 1.0  # with a writer in another process: it changes rows within a millisecond, unless it was stopped
RETRY_S = 1e-4


def make_step_ids(store_id: bytes, serials: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The ids of rows in segments, [..., 20]."""
    ids = np.empty(rows.shape, STEP_ID)
    ids["store"] = int.from_bytes(store_id, "little")
    ids["serial"] = serials
    ids["row"] = rows
    return ids[..., None].view(np.uint8)


def split_step_ids(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parts of ids, [n, 20]: the stores' ids, serials and rows."""
    parts = np.ascontiguousarray(ids, np.uint8).view(STEP_ID)[:, 0]
    return parts["store"], parts["serial"].astype(np.int64), parts["row"].astype(np.int64)


def gather(
    segments: Mapping[int, Segment],
    serials: np.ndarray,
    rows: np.ndarray,
    *,
    names: Iterable[str] | None = None,
    patience_s: float = 0.0,
    takes_torn: bool = False,
) -> Batch | None:
    """Copies rows out of segments (by serial); `serials` and `rows` have the shape that the batch begins with.

    Every row is as it was at one time. Returns None if some were still being changed after `patience_s`, unless such
    rows are to be taken as they are.
    """
    columns = next(iter(segments.values())).layout.schema.columns
    flat_serials, flat_rows = serials.reshape(-1), rows.reshape(-1)
    batch = {name: np.empty((len(flat_rows), *columns[name].shape), columns[name].dtype) for name in names or columns}
    # Rows that follow each other are copied at once.
    is_break = (flat_serials[1:] != flat_serials[:-1]) | (flat_rows[1:] != flat_rows[:-1] + 1)
    starts = [0, *(np.flatnonzero(is_break) + 1).tolist()]
    ends = [*starts[1:], len(flat_rows)]
    outputs = list(batch.items())
    for start, end, serial, row in zip(
        starts, ends, flat_serials[starts].tolist(), flat_rows[starts].tolist(), strict=True
    ):
        segment, stop = segments[serial], row + end - start
        changes = segment.changes(row, stop)
        for name, output in outputs:
            output[start:end] = segment.columns[name][row:stop]
        if not segment.is_whole(row, stop, changes):
            part = {name: output[start:end] for name, output in outputs}
            if not _copy_patiently(segment, row, stop, part, patience_s) and not takes_torn:
                return None
    return {name: output.reshape(*rows.shape, *output.shape[1:]) for name, output in outputs}


def join_sequences(parts: Sequence[Batch]) -> Batch:
    """Sequences of several stores as one batch, with the columns of the first; what others lack of these is zero."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([_like(value, part, name) for part in parts]) for name, value in parts[0].items()}


def _like(value: np.ndarray, part: Batch, name: str) -> np.ndarray:
    found = part.get(name)
    if found is not None and (found.dtype, found.shape[1:]) == (value.dtype, value.shape[1:]):
        return found
    return np.zeros((len(part["stepid"]), *value.shape[1:]), value.dtype)


def _copy_patiently(segment: Segment, row: int, stop: int, outputs: Batch, patience_s: float) -> bool:
    """Copies rows that are being changed, until they were not; nothing tells a reader of a mapped file when."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        time.sleep(RETRY_S)
        changes = segment.changes(row, stop)
        for name, output in outputs.items():
            output[:] = segment.columns[name][row:stop]
        if segment.is_whole(row, stop, changes):
            return True
    return False
