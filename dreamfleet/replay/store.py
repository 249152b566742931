"""The replay store: trajectories of rows in segment files, which the replay role writes, samples and updates.

A batch is written into blocks that belong to one trajectory each, then its rows get their numbers, then one record
commits them all: whoever opens the segments after a kill finds every committed row and nothing else.
"""

import logging
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from dreamfleet import lifecycle
from dreamfleet.base.dimensions import STEP_ID_BYTES
from dreamfleet.errors import ReplayError
from dreamfleet.options.replay import SamplingOptions
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.disk import DiskFiles
from dreamfleet.replay.gather import gather, make_step_ids, split_step_ids
from dreamfleet.replay.ram import RamFiles
from dreamfleet.replay.rows import Rows
from dreamfleet.replay.schema import Column, Schema
from dreamfleet.replay.segment import Segment
from dreamfleet.replay.selectors import Selector, decode, encode, fractions
from dreamfleet.replay.space import check_fit, choose_capacity, format_bytes, plan

log = logging.getLogger("dreamfleet.replay")

PRIORITY = Column("priority", np.dtype(np.float32), ())  # of a step, where it is not a column of the rows


class Store:
    """Keeps the newest `capacity` steps and samples sequences of `length` rows; thread-safe.

    A sequence never leaves its trajectory, the rows of one environment without a gap. It may cross an episode's end;
    where an episode was abandoned (the next row is a first one), the row before is marked as last. Without a directory
    the store is in memory. A capacity of 0 is chosen from `steps`, those that the run will have, and the space that
    there is, when the first row comes; it holds `least`.
    """

    def __init__(
        self,
        length: int,
        capacity: int = 0,
        *,
        directory: str | Path | None = None,
        steps: int = 0,
        least: int = 0,
        sampling: SamplingOptions | None = None,
        online: bool = False,
        sync_every: float = 30.0,
        truncates: bool = False,
        seed: int = 0,
    ):
        if 0 < capacity < length:
            raise ReplayError(f"capacity={capacity} cannot hold one sequence of length={length}; raise the capacity")
        self.length = length
        self.capacity = capacity
        self._steps, self._least = steps, max(least, length)
        self._sampling = sampling or SamplingOptions()
        fractions(self._sampling)  # refused here rather than with the first row
        self._is_online = online
        self.truncates = truncates
        self._seed = seed
        self._rngs: dict[str, np.random.Generator] = {}  # by mode, so that a report leaves training as it was
        self._updates_ignored = 0
        self._selector: Selector
        self._lock = threading.RLock()
        self._files = RamFiles() if directory is None else DiskFiles(directory)
        segments, is_whole = self._files.load()
        self._state = self._files.state
        self._rows: Rows | None = None  # until there is a first row, which says what rows look like
        if segments:
            try:
                self._begin(segments[-1].layout.schema, segments, is_whole)
            except BaseException:
                self._files.close()
                raise
        self._closing = threading.Event()
        if self._files.is_lasting and sync_every:
            lifecycle.spawn(self._keep_synced, sync_every, name="replay-sync")

    def __len__(self) -> int:
        return len(self._rows.items) if self._rows else 0

    @property
    def steps(self) -> int:
        """The number of rows that it holds."""
        return self._rows.steps if self._rows else 0

    @property
    def committed(self) -> int:
        """The number of rows that were ever committed."""
        return self._state.committed

    @property
    def note(self) -> bytes:
        """What the caller committed with the last rows for which it gave a note."""
        return self._state.note

    def add(self, step: dict, worker: int) -> None:
        self.add_many({k: np.asarray(v)[None] for k, v in step.items()}, [worker])

    def add_many(self, batch: Batch, workers: Sequence[int], note: bytes | None = None) -> None:
        """Appends row i of `batch` to the trajectory of `workers[i]`, all or nothing, together with the note."""
        if not len(workers):
            return
        with self._lock:
            rows = self._rows or self._begin(_first_schema(batch, len(workers)))
            rows.layout.schema.check(batch, len(workers))
            items = rows.append(batch, workers, self._state.note if note is None else note)
            if self._selector.priorities:
                self._selector.priorities.note_items(items)

    def sample(self, batch: int, mode: str = "train") -> Batch:
        """Sequences as arrays [batch, length, ...], with the step ids of their rows."""
        serials, rows, segments = self._draw(batch, mode)
        data = gather(segments, serials, rows)
        if data is None:  # some of them are being updated
            with self._lock:
                data = gather(segments, serials, rows)
        assert data is not None, "only who has the lock changes rows"
        data["is_first"][:, 0] = True
        data["stepid"] = make_step_ids(self._state.store_id, serials, rows)
        return data

    def sample_references(self, batch: int, mode: str = "train") -> Batch:
        """The step ids of sequences, and in `is_first` where the rows they stand for are to be marked as first."""
        serials, rows, _ = self._draw(batch, mode)
        is_first = np.zeros(rows.shape, bool)
        is_first[:, 0] = True
        return {"stepid": make_step_ids(self._state.store_id, serials, rows), "is_first": is_first}

    def paths(self, step_ids: np.ndarray) -> dict[str, str]:
        """Where another process on this machine finds the segments of steps: serial -> path."""
        assert self._rows, "there are no steps yet"
        serials = set(split_step_ids(step_ids.reshape(-1, STEP_ID_BYTES))[1].tolist())
        with self._lock:
            live = self._rows.pool.live
            return {str(serial): live[serial].path for serial in serials if serial in live}

    @property
    def oldest(self) -> int:
        """The lowest serial of a segment that is still there."""
        return self._rows.pool.oldest if self._rows else 0

    def update(self, data: Batch) -> None:
        """Overwrites columns, and `priority`, at `stepid`; rows that are gone are ignored and counted."""
        step_ids = _as_array("stepid", data["stepid"])
        if step_ids.dtype != np.uint8 or step_ids.shape[-1:] != (STEP_ID_BYTES,):
            given = f"{step_ids.dtype.name}{step_ids.shape}"
            raise ReplayError(f"'stepid' is {given}, not bytes of shape (..., {STEP_ID_BYTES}) as in a sample")
        step_ids = step_ids.reshape(-1, STEP_ID_BYTES)
        with self._lock:
            if not self._rows:
                self._updates_ignored += len(step_ids)
                return
            columns = self._rows.layout.schema.columns
            given = {
                name: _flat_rows(column, value, len(step_ids))
                for name, column in {"priority": PRIORITY, **columns}.items()
                if (value := data.get(name)) is not None
            }
            places, is_known = self._rows.find(step_ids)
            if not is_known.all():
                self._updates_ignored += int((~is_known).sum())
                places, given = places[is_known], {name: value[is_known] for name, value in given.items()}
            if len(places):
                if changed := {name: value for name, value in given.items() if name in columns}:
                    self._rows.update(places, changed)
                if self._selector.priorities and "priority" in given:
                    self._set_priorities(places, given["priority"])

    def save(self) -> dict[str, Any]:
        """A watermark: what belongs to a checkpoint is what was committed by then."""
        with self._lock:
            rngs = {mode: rng.bit_generator.state for mode, rng in self._rngs.items()}
            mark = {"store": self._state.store_id, "committed": self._state.committed, "rngs": rngs}
            return {**mark, "unseen": self._rows.save_unseen()} if self._rows else mark

    def load(self, data: dict[str, Any]) -> None:
        """Goes on from a watermark; rows beyond it are kept, unless the store was told to truncate them."""
        with self._lock:
            if self.truncates:  # else rows may have been drawn after the watermark, and would be drawn again
                for mode, state in data["rngs"].items():
                    self._rng(mode).bit_generator.state = state
            if self.truncates and self._rows and data["store"] == self._state.store_id:
                self._rows.truncate(data["committed"])
                self._rows.load_unseen(data.get("unseen"))
                self._load_priorities()

    def sync(self) -> None:
        """Forces every committed row to the disk."""
        if self._rows:
            self._rows.pool.sync(self._lock, lambda: self._state.committed)

    def stats(self) -> dict[str, float]:
        with self._lock:
            if not self._rows:
                return {"steps": 0, "items": 0, "capacity": self.capacity, "updates_ignored": self._updates_ignored}
            layout = self._rows.layout
            return {
                "steps": self.steps,
                "items": len(self),
                "capacity": self.capacity,
                "trajectories": self._rows.count_trajectories(),
                "segments": len(self._rows.pool.live),
                "step_bytes": layout.schema.row_bytes,
                "bytes": len(self._rows.pool.live) * layout.size,
                "updates_ignored": self._updates_ignored,
            }

    def close(self) -> None:
        """Syncs, and lets another process open the store."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._rows:
            self._rows.pool.close()
            self.sync()
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, schema: Schema, segments: Sequence[Segment] = (), is_whole: bool = True) -> Rows:
        """Sets the store up for rows of a schema, and says what it will take."""
        room = self._files.room()
        if not self.capacity:
            self.capacity = max(choose_capacity(schema, self._steps, room), self._state.capacity, self._least)
        geometry = plan(schema, self.capacity, segments[-1].layout.rows if segments else None)
        check_fit(geometry, self.capacity, room, self._files.place)
        size = format_bytes(geometry.total_bytes)
        place, step_bytes = self._files.place, schema.row_bytes
        log.info("replay buffer: %s steps of %s bytes, %s in %s", f"{self.capacity:,}", f"{step_bytes:,}", size, place)
        self._state.take_over(self.capacity)
        rows = Rows(self._files, geometry, self.length, online=self._is_online, on_evict=self._forget)
        self._selector = Selector(self._sampling, rows.blocks, rows.items, geometry.rows)
        rows.adopt(list(segments), is_whole)
        self._rows = rows
        self._load_priorities()
        return rows

    def _draw(self, batch: int, mode: str) -> tuple[np.ndarray, np.ndarray, dict[int, Segment]]:
        """Serials and rows of sequences, and the segments to gather them from, without the lock."""
        with self._lock:
            if not len(self) or not self._rows:
                raise ReplayError(f"no sequence of {self.length} rows to sample yet; wait until len(replay) > 0")
            is_zeroed = self._sampling.priority_zero and mode == "train"
            places = self._rows.blocks.sequences(self._choose(batch, mode, is_zeroed))
            if self._selector.priorities and is_zeroed:
                self._set_priorities(places.reshape(-1), np.zeros(places.size, np.float32))
            return *self._rows.locate(places), dict(self._rows.pool.live)

    def _choose(self, batch: int, mode: str, is_zeroed: bool) -> np.ndarray:
        assert self._rows
        unseen = self._rows.unseen if mode == "train" else ()
        first = np.array([self._rows.unseen.popleft() for _ in range(min(batch, len(unseen)))], np.int64)
        if len(first) == batch:
            return first
        drawn = self._selector.draw(self._rng(mode), batch - len(first), is_zeroed)
        return np.concatenate([first, drawn]) if len(first) else drawn

    def _rng(self, mode: str) -> np.random.Generator:
        if mode not in self._rngs:
            self._rngs[mode] = np.random.default_rng([self._seed, *mode.encode()])
        return self._rngs[mode]

    def _set_priorities(self, places: np.ndarray, priorities: np.ndarray) -> None:
        if self._rows and self._selector.priorities:
            self._selector.priorities.set(places, priorities)
            self._rows.write_priorities(places, encode(priorities))

    def _load_priorities(self) -> None:
        if self._rows and self._selector.priorities:
            for segment in self._rows.pool.live.values():
                first = segment.serial % self._rows.pool.slots * segment.layout.rows
                self._selector.priorities.begin(first, decode(segment.priorities, self._sampling.priority_initial))

    def _forget(self, first: int, end: int) -> None:
        if self._selector.priorities:
            self._selector.priorities.drop(first, end)

    def _keep_synced(self, every_s: float) -> None:
        while not self._closing.wait(every_s):
            try:
                self.sync()
            except OSError as error:
                log.warning("%s could not be synced: %s", self._files.place, error)


def _as_array(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ReplayError(f"'{name}' is not an array: {error}") from error


def _flat_rows(column: Column, value: Any, count: int) -> np.ndarray:
    value = _as_array(column.name, value)
    if value.size != count * math.prod(column.shape):
        raise ReplayError(
            f"'{column.name}' has shape {value.shape}, but there are {count} steps of shape {column.shape}"
        )
    if not np.can_cast(value.dtype, column.dtype, "same_kind"):
        raise ReplayError(f"'{column.name}' is {value.dtype.name}, but the steps have {column}")
    return value.reshape(count, *column.shape)


def _first_schema(batch: Batch, num_rows: int) -> Schema:
    schema = Schema.of_batch(batch)
    schema.check(batch, num_rows)
    return schema
