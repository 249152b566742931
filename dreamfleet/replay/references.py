"""References to rows instead of rows: for a learner on the machine of the store, which maps the segments itself."""

import functools
import os

import numpy as np

from dreamfleet.replay.contract import Batch
from dreamfleet.replay.gather import STEP_ID_BYTES, gather, split_step_ids
from dreamfleet.replay.segment import Segment, open_segment
from dreamfleet.replay.state import boot_id
from dreamfleet.replay.store import Store


class References:
    """A store as streams see it that hand on step ids in place of rows."""

    def __init__(self, store: Store):
        self.length = store.length
        self.sample = store.sample_references


class Reader:
    """Gathers rows from the segments of a store in another process.

    A segment file that was deleted meanwhile still has its rows for whoever has it mapped. Memory that was used again
    has another id than the one it was looked up by.
    """

    def __init__(self):
        self._segments: dict[bytes, Segment] = {}

    def read(self, batch: Batch, paths: dict[str, str], oldest: int) -> Batch | None:
        """The rows that references stand for, or None if some are gone; `oldest` is the lowest serial that is not."""
        ids = batch["stepid"]
        _, serials, rows = split_step_ids(ids.reshape(-1, STEP_ID_BYTES))
        store_id = ids.reshape(-1, STEP_ID_BYTES)[0, :8].tobytes()
        self._forget(store_id, oldest)
        try:
            segments = {serial: self._find(store_id, serial, paths) for serial in np.unique(serials).tolist()}
        except (OSError, ValueError, KeyError):
            return None
        data = gather(segments, serials.reshape(ids.shape[:-1]), rows.reshape(ids.shape[:-1]))
        if any(segment.id != _segment_id(store_id, serial) for serial, segment in segments.items()):
            return None
        data["is_first"] |= batch["is_first"]
        return {**batch, **data}

    def _find(self, store_id: bytes, serial: int, paths: dict[str, str]) -> Segment:
        segment_id = _segment_id(store_id, serial)
        if segment_id not in self._segments:
            self._segments[segment_id] = open_segment(paths[str(serial)], segment_id)
        return self._segments[segment_id]

    def _forget(self, store_id: bytes, oldest: int) -> None:
        """Lets go of segments that are gone, so that their space is free."""
        for segment_id in list(self._segments):
            if segment_id[:8] != store_id or int.from_bytes(segment_id[8:], "big") < oldest:
                del self._segments[segment_id]


@functools.cache
def reader_place() -> dict[str, str | int]:
    """Where this process runs, by which the replay knows whether references are of use to it."""
    return {"boot": boot_id().decode(), "pid": os.getpid()}


def _segment_id(store_id: bytes, serial: int) -> bytes:
    return store_id + serial.to_bytes(8, "big")
