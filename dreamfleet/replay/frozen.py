"""The steps of a store that is not ours to change: held-out episodes, and those of others that a run mixes in."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dreamfleet.base.dimensions import STEP_ID_BYTES
from dreamfleet.errors import ReplayError
from dreamfleet.options.replay import SamplingOptions
from dreamfleet.replay.archive import find_store, open_segments
from dreamfleet.replay.blocks import Blocks, Items
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.gather import PATIENCE_S, gather, make_step_ids, split_step_ids
from dreamfleet.replay.recovery import find_items, link
from dreamfleet.replay.segment import Segment, open_segment
from dreamfleet.replay.selectors import Selector
from dreamfleet.replay.state import open_state


class FrozenStore:
    """A replay of the steps that a store held when it was opened; thread-safe.

    The store may be in use by another run: nothing is written to it, and segments that are evicted there are kept here.
    Steps that are added are dropped. So are updates, except for priorities, which are kept in memory: whoever maps the
    files would not see what is not in them.
    """

    def __init__(
        self,
        length: int,
        directory: str | Path,
        *,
        sampling: SamplingOptions | None = None,
        truncates: bool = False,
        seed: int = 0,
    ):
        self.length = length
        self.directory = find_store(Path(directory).expanduser())
        self.truncates = truncates
        self._sampling = sampling or SamplingOptions()
        self._seed = seed
        self._rngs: dict[str, np.random.Generator] = {}  # by mode
        self._lock = threading.Lock()
        self._fds: list[int] = []
        state = open_state(self.directory / "state", is_writable=False)
        self.store_id = state.store_id
        found = list(open_segments(self.directory, self.store_id, self._open))
        self._segments = [segment for segment in found if segment.layout.header == found[-1].layout.header]
        self._link(state.committed)
        if not len(self):
            self.close()
            raise ReplayError(f"{self.directory} holds no sequence of {length} steps")

    def __len__(self) -> int:
        return len(self._items)

    @property
    def steps(self) -> int:
        """The number of rows that it holds."""
        return int(self._blocks.filled.sum())

    @property
    def capacity(self) -> int:
        return self.steps

    @property
    def oldest(self) -> int:
        return self._segments[0].serial

    def add(self, step: dict[str, Any], worker: int) -> None:
        pass

    def add_many(self, batch: Batch, workers: Sequence[int]) -> None:
        pass

    def sample(self, batch: int, mode: str = "train") -> Batch:
        """Sequences as arrays [batch, length, ...], with the step ids of their rows."""
        serials, rows = self._draw(batch, mode)
        # Where a writer was killed amid an update, nobody ends it before the store is opened again.
        data = gather(self._by_serial, serials, rows, patience_s=PATIENCE_S, takes_torn=True)
        assert data is not None
        data["is_first"][:, 0] = True
        return {**data, "stepid": make_step_ids(self.store_id, serials, rows)}

    def sample_references(self, batch: int, mode: str = "train") -> Batch:
        """The step ids of sequences, and in `is_first` where the rows they stand for are to be marked as first."""
        serials, rows = self._draw(batch, mode)
        is_first = np.zeros(rows.shape, bool)
        is_first[:, 0] = True
        return {"stepid": make_step_ids(self.store_id, serials, rows), "is_first": is_first}

    def paths(self, step_ids: np.ndarray) -> dict[str, str]:
        """Where another process on this machine finds the segments of steps, deleted ones included: serial -> path."""
        serials = np.unique(split_step_ids(step_ids.reshape(-1, STEP_ID_BYTES))[1]).tolist()
        return {str(serial): self._by_serial[serial].path for serial in serials}

    def update(self, data: Batch) -> None:
        """Takes priorities; see above for the rest."""
        priorities = self._selector.priorities
        if priorities is None or "priority" not in data:
            return
        stores, serials, rows = split_step_ids(np.asarray(data["stepid"]).reshape(-1, STEP_ID_BYTES))
        slots = np.searchsorted(self._serials, serials).clip(max=len(self._serials) - 1)
        is_known = (stores == int.from_bytes(self.store_id, "little")) & (self._serials[slots] == serials)
        is_known &= rows < self._segments[0].layout.rows
        places = slots * self._segments[0].layout.rows + rows
        with self._lock:
            priorities.set(places[is_known], np.asarray(data["priority"], np.float32).reshape(-1)[is_known])

    def save(self) -> dict[str, Any]:
        """Where sampling stands, and which steps it is from."""
        rngs = {mode: rng.bit_generator.state for mode, rng in self._rngs.items()}
        return {"store": self.store_id, "committed": self._committed, "rngs": rngs}

    def load(self, data: dict[str, Any]) -> None:
        """Goes on exactly where it was saved, if it was told so, however many steps there are by now."""
        if not self.truncates or data.get("store") != self.store_id:
            return
        self._link(min(data["committed"], self._committed))
        for mode, state in data["rngs"].items():
            self._rng(mode).bit_generator.state = state

    def stats(self) -> dict[str, float]:
        return {"steps": self.steps, "items": len(self), "segments": len(self._segments)}

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def _open(self, path: Path) -> Segment:
        """Maps a segment by a path that leads to it as long as this process lives, also when the file is deleted."""
        fd = os.open(path, os.O_RDONLY)
        try:
            segment = open_segment(f"/proc/{os.getpid()}/fd/{fd}")
        except BaseException:
            os.close(fd)
            raise
        self._fds.append(fd)
        return segment

    def _link(self, committed: int) -> None:
        """Finds the sequences in the rows up to a number."""
        self._committed = committed
        self._by_serial = {segment.serial: segment for segment in self._segments}
        self._serials = np.array(list(self._by_serial), np.int64)
        slots = list(enumerate(self._segments))
        blocks = sum(segment.layout.blocks for segment in self._segments)
        self._blocks = Blocks(blocks, self.length)
        link(slots, committed, self._blocks)
        rows = sum(segment.layout.rows for segment in self._segments)
        self._items = Items(rows)
        self._items.add(starts := find_items(slots, self._blocks))
        self._selector = Selector(self._sampling, self._blocks, self._items, rows)
        if self._selector.priorities:
            self._selector.priorities.note_items(starts.tolist())

    def _draw(self, batch: int, mode: str) -> tuple[np.ndarray, np.ndarray]:
        """Serials and rows of sequences."""
        with self._lock:
            priorities, is_zeroed = self._selector.priorities, self._sampling.priority_zero and mode == "train"
            places = self._blocks.sequences(self._selector.draw(self._rng(mode), batch, is_zeroed))
            if priorities and is_zeroed:
                priorities.set(places.reshape(-1), np.zeros(places.size, np.float32))
        slots, rows = np.divmod(places, self._segments[0].layout.rows)
        return self._serials[slots], rows

    def _rng(self, mode: str) -> np.random.Generator:
        if mode not in self._rngs:
            self._rngs[mode] = np.random.default_rng([self._seed, *mode.encode()])
        return self._rngs[mode]
