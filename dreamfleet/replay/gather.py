"""Step ids, and the rows that they stand for: gathered from mapped segments, in this process or in the learner's."""

from collections.abc import Mapping

import numpy as np

from dreamfleet.base.dimensions import STEP_ID_BYTES
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.segment import Segment

STEP_ID = np.dtype([("store", "<u8"), ("serial", ">u8"), ("row", ">u4")])  # the segment's id is the first two
assert STEP_ID.itemsize == STEP_ID_BYTES


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


def gather(segments: Mapping[int, Segment], serials: np.ndarray, rows: np.ndarray) -> Batch:
    """Copies rows out of segments (by serial); `serials` and `rows` have the shape that the batch begins with."""
    columns = next(iter(segments.values())).layout.schema.columns.values()
    flat_serials, flat_rows = serials.reshape(-1), rows.reshape(-1)
    batch = {column.name: np.empty((len(flat_rows), *column.shape), column.dtype) for column in columns}
    # Rows that follow each other are copied at once.
    is_break = (flat_serials[1:] != flat_serials[:-1]) | (flat_rows[1:] != flat_rows[:-1] + 1)
    starts = [0, *(np.flatnonzero(is_break) + 1).tolist()]
    ends = [*starts[1:], len(flat_rows)]
    outputs = list(batch.items())
    for start, end, serial, row in zip(
        starts, ends, flat_serials[starts].tolist(), flat_rows[starts].tolist(), strict=True
    ):
        source, stop = segments[serial].columns, row + end - start
        for name, output in outputs:
            output[start:end] = source[name][row:stop]
    return {name: output.reshape(*rows.shape, *output.shape[1:]) for name, output in outputs}
