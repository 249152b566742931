"""References to rows instead of rows: for a learner on the machine of the store, which maps the segments itself."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np

from dreamfleet.base.dimensions import STEP_ID_BYTES
from dreamfleet.errors import NeedsRows
from dreamfleet.replay.contract import Batch, GivesReferences
from dreamfleet.replay.gather import PATIENCE_S, gather, join_sequences, split_step_ids
from dreamfleet.replay.segment import Segment, open_segment
from dreamfleet.replay.state import boot_id

STORE_ID_BYTES, SEGMENT_ID_BYTES = 8, 16  # of those that a step id begins with
_VISIBLE = ("stepid", "consec")  # of a batch of references; its `is_first` is not that of the rows


def reference_batches(
    make_stream: Callable[[Any, str], Iterable[Batch]], replay: GivesReferences, mode: str
) -> Iterator[Batch]:
    """The batches of a stream as references, or NeedsRows if it looks at rows or makes batches of its own.

    Any other exception is one of the stream.
    """
    for batch in make_stream(References(replay), mode):
        if not isinstance(batch, ReferenceBatch):
            raise NeedsRows("the stream makes batches of its own")
        yield batch.arrays()


class References:
    """A replay as a stream sees it whose batches may be references; it has `length` and `sample`."""

    def __init__(self, replay: GivesReferences):
        self.length = replay.length
        self._replay = replay

    def sample(self, batch: int, mode: str = "train") -> "ReferenceBatch":
        return ReferenceBatch(self._replay.sample_references(batch, mode))

    def __len__(self) -> int:
        raise NeedsRows("the stream asked for the number of sequences")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # Python itself asks for those
        raise NeedsRows(f"the stream used replay.{name}")


def _refuse(self: "ReferenceBatch", *_: Any, **__: Any) -> NoReturn:
    raise NeedsRows("the stream went through the columns of a batch")


class ReferenceBatch(dict):
    """Arrays of references that show `stepid` and `consec` only: all else would be right for rows alone.

    Going through the keys counts as looking at rows, as whoever does so may leave some out or change them by type.
    """

    keys = values = items = copy = pop = popitem = clear = _refuse
    update = setdefault = _refuse  # pyright: ignore[reportAssignmentType]
    __iter__ = __reversed__ = __len__ = __or__ = __ror__ = __ior__ = __delitem__ = _refuse

    def __getitem__(self, key: str) -> np.ndarray:
        _check_visible(key)
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: np.ndarray) -> None:
        _check_visible(key)
        super().__setitem__(key, value)

    def __contains__(self, key: object) -> bool:
        _check_visible(key)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        _check_visible(key)
        return super().get(key, default)

    def arrays(self) -> Batch:
        """All of the arrays, for whoever sends or resolves them."""
        return dict(super().items())

    def steps(self, start: int, stop: int) -> "ReferenceBatch":
        """The steps from `start` to `stop` of each sequence."""
        return ReferenceBatch({k: v[:, start:stop] for k, v in super().items()})


def _check_visible(key: object) -> None:
    if key not in _VISIBLE:
        raise NeedsRows(f"the stream looked at '{key}'")


class Reader:
    """Gathers rows from the segments of a store in another process.

    A segment file that was deleted meanwhile still has its rows for whoever has it mapped. Memory that was used again
    has another id than the one it was looked up by.
    """

    def __init__(self):
        self._segments: dict[bytes, Segment] = {}
        self._lasting: set[bytes] = set()  # those that were named by their whole ids

    def read(self, batch: Batch, paths: dict[str, str], oldest: int) -> Batch | None:
        """The rows that references stand for, or None if some are gone; `oldest` is the lowest serial that is not.

        The first sequence is of the replay's own store. Those of others may follow, whose segments are never gone and
        named by their whole ids in `paths`.
        """
        ids, parts = batch["stepid"], []
        self._lasting |= {bytes.fromhex(name) for name in paths if len(name) == 2 * SEGMENT_ID_BYTES}
        self._forget(ids[0, 0, :STORE_ID_BYTES].tobytes(), oldest)
        is_other = (ids[1:, 0, :STORE_ID_BYTES] != ids[:-1, 0, :STORE_ID_BYTES]).any(-1)
        for part in np.split(ids, np.flatnonzero(is_other) + 1):
            data = self._read_store(part, paths)
            if data is None:
                return None
            parts.append({**data, "stepid": part})
        data = join_sequences(parts)
        data["is_first"] |= batch["is_first"]
        return {**batch, **data}

    def _read_store(self, ids: np.ndarray, paths: dict[str, str]) -> Batch | None:
        """The rows of steps that are all of one store."""
        flat = ids.reshape(-1, STEP_ID_BYTES)
        store_id, (_, serials, rows) = flat[0, :STORE_ID_BYTES].tobytes(), split_step_ids(flat)
        try:
            segments = {serial: self._find(store_id, serial, paths) for serial in np.unique(serials).tolist()}
        except (OSError, ValueError, KeyError):
            return None
        shape = ids.shape[:-1]
        data = gather(segments, serials.reshape(shape), rows.reshape(shape), patience_s=PATIENCE_S)
        is_reused = any(segment.id != _segment_id(store_id, serial) for serial, segment in segments.items())
        return None if is_reused else data

    def _find(self, store_id: bytes, serial: int, paths: dict[str, str]) -> Segment:
        segment_id = _segment_id(store_id, serial)
        if segment_id not in self._segments:
            name = segment_id.hex() if segment_id in self._lasting else str(serial)
            self._segments[segment_id] = open_segment(paths[name], segment_id)
        return self._segments[segment_id]

    def _forget(self, store_id: bytes, oldest: int) -> None:
        """Lets go of segments that are gone, so that their space is free."""
        for segment_id in self._segments.keys() - self._lasting:
            if segment_id[:STORE_ID_BYTES] != store_id or int.from_bytes(segment_id[STORE_ID_BYTES:], "big") < oldest:
                del self._segments[segment_id]


@functools.cache
def reader_place() -> dict[str, str | int]:
    """Where this process runs, by which the replay knows whether references are of use to it."""
    return {"boot": boot_id().decode(), "pid": os.getpid()}


def _segment_id(store_id: bytes, serial: int) -> bytes:
    return store_id + serial.to_bytes(8, "big")
