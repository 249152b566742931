"""A replay in memory: fixed blocks of rows, each owned by one environment's stream, reused oldest first."""

import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dreamfleet.errors import ReplayError
from dreamfleet.replay.contract import Batch

BLOCK_ROWS = 64
STEP_ID_BYTES = 20


@dataclass
class Stream:
    """Rows of one environment in order, without a gap: full blocks and the number of rows in the last."""

    blocks: list[int] = field(default_factory=list)  # slots, oldest first
    last_rows: int = BLOCK_ROWS

    @property
    def rows(self) -> int:
        return max(0, len(self.blocks) - 1) * BLOCK_ROWS + (self.last_rows if self.blocks else 0)


class MemoryReplay:
    """Keeps the newest `capacity` steps and samples sequences of `length` uniformly; thread-safe.

    A sequence never leaves its stream. It may cross an episode's end; where an episode was abandoned (the next row is a
    first one), the row before is marked as last.
    """

    def __init__(self, length: int, capacity: int, seed: int = 0):
        if capacity < length:
            raise ReplayError(f"capacity={capacity} cannot hold one sequence of length={length}; raise the capacity")
        self.length = length
        self.capacity = capacity
        self._num_slots = -(-capacity // BLOCK_ROWS) + 1
        self._columns: dict[str, np.ndarray] = {}  # [slot, row, ...]
        self._streams: dict[int, Stream] = {}  # open streams by worker
        self._closed: list[Stream] = []  # streams that get no more rows but can be sampled
        self._order: deque[tuple[int, Stream]] = deque()  # (slot, owner), oldest first
        self._free = list(range(self._num_slots))[::-1]
        self._serial = np.zeros(self._num_slots, np.uint64)  # names the present use of each slot; 0 is unused
        self._slot_of: dict[int, int] = {}  # serial -> slot
        self._next_serial = 1
        self._store_id = os.urandom(8)
        self._seed = seed
        self._rngs: dict[str, np.random.Generator] = {}  # by mode, so that a report leaves training as it was
        self._lock = threading.RLock()
        self._updates_ignored = 0

    def __len__(self) -> int:
        with self._lock:
            return sum(self._starts(s) for s in self._all_streams())

    def add(self, step: dict, worker: int) -> None:
        self.add_many({k: np.asarray(v)[None] for k, v in step.items()}, [worker])

    def add_many(self, batch: Batch, workers: Sequence[int]) -> None:
        """Appends row i of `batch` to the stream of `workers[i]`; a worker may appear only once."""
        if len(set(workers)) != len(workers):
            raise ReplayError(f"workers {sorted(workers)} are not distinct; send one row of each at a time")
        if len(workers) >= self._num_slots:
            raise ReplayError(f"capacity={self.capacity} cannot hold {len(workers)} environments; raise the capacity")
        with self._lock:
            self._check(batch, len(workers))
            streams = [self._streams.setdefault(int(worker), Stream()) for worker in workers]
            self._end_abandoned(streams, batch["is_first"])
            self._make_room(streams)
            rows = np.array([s.blocks[-1] * BLOCK_ROWS + s.last_rows for s in streams], np.int64)
            for key, column in self._columns.items():
                column.reshape(-1, *column.shape[2:])[rows] = batch[key]
            for stream in streams:
                stream.last_rows += 1

    def sample(self, batch: int, mode: str = "train") -> Batch:
        with self._lock:
            streams = [s for s in self._all_streams() if self._starts(s)]
            if not streams:
                raise ReplayError(f"no sequence of {self.length} rows to sample yet; wait until len(replay) > 0")
            ends = np.cumsum([self._starts(s) for s in streams])
            picks = self._rng(mode).integers(0, ends[-1], batch)
            owners = np.searchsorted(ends, picks, side="right")
            offsets = np.arange(self.length)
            index = np.empty((batch, self.length), np.int64)
            for i, (pick, owner) in enumerate(zip(picks, owners, strict=True)):
                start = pick - (ends[owner - 1] if owner else 0)
                index[i] = _flat_rows(streams[owner].blocks, start + offsets)
            rows = {k: c.reshape(-1, *c.shape[2:]).take(index, axis=0) for k, c in self._columns.items()}
            rows["stepid"] = self._step_ids(index)
        rows["is_first"][:, 0] = True
        return rows

    def update(self, data: Batch) -> None:
        """Overwrites columns at `stepid`; rows that are gone are ignored and counted."""
        with self._lock:
            index, is_known = self._find(np.asarray(data["stepid"]))
            self._updates_ignored += int((~is_known).sum())
            for key, value in data.items():
                if key in self._columns:
                    column = self._columns[key]
                    flat = column.reshape(-1, *column.shape[2:])
                    flat[index[is_known]] = np.asarray(value).reshape(-1, *column.shape[2:])[is_known]

    def save(self) -> dict:
        with self._lock:
            streams = [s for s in self._all_streams() if s.rows]
            index = [_flat_rows(s.blocks, np.arange(s.rows)) for s in streams]
            flat = {k: c.reshape(-1, *c.shape[2:]) for k, c in self._columns.items()}
            return {"streams": [{k: c[rows] for k, c in flat.items()} for rows in index]}

    def load(self, data: dict) -> None:
        """Takes over saved streams; new rows open streams of their own, since rows may be missing in between."""
        for columns in data["streams"]:
            for i in range(len(columns["is_first"])):
                self.add({k: v[i] for k, v in columns.items()}, worker=-1)
            with self._lock:
                self._closed.append(self._streams.pop(-1))

    def stats(self) -> dict[str, float]:
        with self._lock:
            steps = sum(s.rows for s in self._all_streams())
            row_bytes = sum(c[0, 0].nbytes for c in self._columns.values())
            return {
                "steps": steps,
                "items": len(self),
                "capacity": self.capacity,
                "streams": len(self._streams) + len(self._closed),
                "bytes": steps * row_bytes,
                "updates_ignored": self._updates_ignored,
            }

    def _rng(self, mode: str) -> np.random.Generator:
        if mode not in self._rngs:
            self._rngs[mode] = np.random.default_rng([self._seed, *mode.encode()])
        return self._rngs[mode]

    def _all_streams(self) -> list[Stream]:
        return [*self._closed, *self._streams.values()]

    def _starts(self, stream: Stream) -> int:
        return max(0, stream.rows - self.length + 1)

    def _check(self, batch: Batch, num_rows: int) -> None:
        for key, value in batch.items():
            if value.shape[:1] != (num_rows,):
                raise ReplayError(f"'{key}' has shape {value.shape}, but there are {num_rows} workers")
        if not self._columns:
            if "is_first" not in batch:
                raise ReplayError(f"the row has no 'is_first'; it has {sorted(batch)}")
            shape = (self._num_slots, BLOCK_ROWS)
            self._columns = {k: np.zeros((*shape, *v.shape[1:]), v.dtype) for k, v in batch.items()}
        missing, extra = self._columns.keys() - batch.keys(), batch.keys() - self._columns.keys()
        if missing or extra:
            raise ReplayError(
                f"the row has other keys than the first one: missing {sorted(missing)}, extra {sorted(extra)}"
            )
        for key, column in self._columns.items():
            value = batch[key]
            if value.shape[1:] != column.shape[2:] or value.dtype != column.dtype:
                raise ReplayError(
                    f"'{key}' is {value.dtype.name}{value.shape[1:]}, but the first row had "
                    f"{column.dtype.name}{column.shape[2:]}"
                )

    def _end_abandoned(self, streams: list[Stream], is_first: np.ndarray) -> None:
        if "is_last" not in self._columns:
            return
        for i in np.flatnonzero(is_first):
            if streams[i].blocks:
                self._columns["is_last"][streams[i].blocks[-1], streams[i].last_rows - 1] = True

    def _make_room(self, streams: list[Stream]) -> None:
        # The block that is evicted for one stream may be the one another was about to write to: hence again.
        while full := [stream for stream in streams if stream.last_rows == BLOCK_ROWS]:
            for stream in full:
                self._open_block(stream)

    def _open_block(self, stream: Stream) -> None:
        if not self._free:
            self._evict()
        slot = self._free.pop()
        stream.blocks.append(slot)
        stream.last_rows = 0
        self._order.append((slot, stream))
        self._serial[slot] = self._next_serial
        self._slot_of[self._next_serial] = slot
        self._next_serial += 1

    def _evict(self) -> None:
        slot, stream = self._order.popleft()  # the oldest block is the first of its stream
        assert stream.blocks[0] == slot, (stream.blocks, slot)
        del stream.blocks[0]
        if not stream.blocks:
            stream.last_rows = BLOCK_ROWS
            self._closed = [s for s in self._closed if s is not stream]
        del self._slot_of[int(self._serial[slot])]
        self._serial[slot] = 0
        self._free.append(slot)

    def _step_ids(self, index: np.ndarray) -> np.ndarray:
        ids = np.empty((*index.shape, STEP_ID_BYTES), np.uint8)
        ids[..., :8] = np.frombuffer(self._store_id, np.uint8)
        ids[..., 8:16] = self._serial[index // BLOCK_ROWS].astype(">u8")[..., None].view(np.uint8)
        ids[..., 16:] = (index % BLOCK_ROWS).astype(">u4")[..., None].view(np.uint8)
        return ids

    def _find(self, step_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids = np.ascontiguousarray(step_ids.reshape(-1, STEP_ID_BYTES))
        serials = ids[:, 8:16].copy().view(">u8")[:, 0].astype(np.uint64)
        rows = ids[:, 16:].copy().view(">u4")[:, 0].astype(np.int64)
        names, inverse = np.unique(serials, return_inverse=True)
        slots = np.array([self._slot_of.get(int(name), -1) for name in names])[inverse]
        is_ours = (ids[:, :8] == np.frombuffer(self._store_id, np.uint8)).all(1)
        return slots * BLOCK_ROWS + rows, is_ours & (slots >= 0) & (rows < BLOCK_ROWS)


def _flat_rows(blocks: list[int], positions: np.ndarray) -> np.ndarray:
    """Row numbers in the flattened columns of `positions` in a stream with these blocks."""
    first = positions[0] // BLOCK_ROWS
    table = np.array(blocks[first : positions[-1] // BLOCK_ROWS + 1])
    return table[positions // BLOCK_ROWS - first] * BLOCK_ROWS + positions % BLOCK_ROWS
