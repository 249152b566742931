"""The rows of a store: where the next ones of each stream go, how they are committed, found again and evicted."""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dreamfleet.errors import ReplayError
from dreamfleet.replay.blocks import Blocks, Items
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.disk import DiskFiles
from dreamfleet.replay.gather import split_step_ids
from dreamfleet.replay.pool import SegmentPool
from dreamfleet.replay.ram import RamFiles
from dreamfleet.replay.recovery import Stream, clean, count_filled, restore
from dreamfleet.replay.segment import BLOCK_ROWS, Segment
from dreamfleet.replay.space import Geometry


class Rows:
    """Streams in segments of one schema; the store's lock guards it. `on_evict` is told which slot is emptied."""

    def __init__(
        self, files: DiskFiles | RamFiles, geometry: Geometry, length: int, on_evict: Callable[[int], None] | None = None
    ):
        self.layout = geometry.layout
        self.pool = SegmentPool(files, geometry, self._evict)
        self.blocks = Blocks(geometry.segments * self.layout.blocks, length)
        self.items = Items(geometry.rows)
        self.completed: deque[int] = deque()  # items that follow each other without overlap, not yet taken
        self.on_evict = on_evict
        self._files = files
        self._state = files.state
        self._length = length
        self._streams: dict[int, Stream] = {}  # by worker
        self._free: deque[int] = deque()  # blocks to write to

    def adopt(self, segments: list[Segment], is_whole: bool) -> None:
        """Takes the committed rows of existing segments; without `is_whole` rows may be missing at the streams' ends."""
        kept = []
        for segment in segments:
            try:
                clean(segment, self._state.committed)
                if difference := self.layout.schema.difference(segment.layout.schema):
                    raise ValueError(difference)
                kept.append(segment)
            except ValueError as error:
                self._files.set_aside(segment.path, error)
                is_whole = False
        self.pool.adopt(kept)
        self._restore(is_whole)

    def truncate(self, committed: int) -> None:
        """Forgets the rows after a number."""
        if committed >= self._state.committed:
            return
        self._state.commit(committed, self._state.note)
        self.blocks = Blocks(len(self.blocks.next), self._length)
        self.items = Items(self.pool.slots * self.layout.rows)
        self.completed.clear()
        for segment in self.pool.live.values():
            clean(segment, committed)
        self._restore(is_whole=False)

    def append(self, batch: Batch, workers: Sequence[int], note: bytes) -> list[int]:
        """Commits rows, in order, to the streams of their workers; returns the sequences that are complete with them."""
        self._make_room(workers)
        committed = self._state.committed
        places, ends, items = self._place(workers, batch["is_first"].tolist(), committed)
        index = np.array(places)
        numbers = np.arange(committed + 1, committed + 1 + len(places), dtype=np.uint64)
        self.write(index, batch, numbers)
        for place in ends:
            self._segment(place).columns["is_last"][place % self.layout.rows] = True
        self._state.commit(committed + len(places), note)
        self.blocks.filled[index // BLOCK_ROWS] = index % BLOCK_ROWS + 1
        self.items.add(items)
        return items

    def write(self, places: np.ndarray, columns: Batch, numbers: np.ndarray | None = None) -> None:
        """Writes columns at places, and the rows' numbers after them."""
        slots, rows = np.divmod(places, self.layout.rows)
        first = int(slots[0])
        parts = [(first, ...)] if (slots == first).all() else [(int(s), slots == s) for s in np.unique(slots)]
        for slot, part in parts:
            segment = self.pool.live[int(self.pool.serials[slot])]
            self.pool.changed.add(segment.serial)
            index = rows[part]
            for name, value in columns.items():
                segment.columns[name][index] = value[part]
            if numbers is not None:
                segment.numbers[index] = numbers[part]

    def locate(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The serials of the segments that places are in, and the rows there."""
        slots, rows = np.divmod(places, self.layout.rows)
        return self.pool.serials[slots], rows

    def find(self, step_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of steps, [n, 20] -> [n], and whether they are still there."""
        stores, serials, rows = split_step_ids(step_ids)
        slots = serials % self.pool.slots
        is_known = (stores == np.frombuffer(self._state.store_id, np.uint64)) & (self.pool.serials[slots] == serials)
        is_known &= rows < self.layout.rows
        places = np.where(is_known, slots * self.layout.rows + rows, 0)
        is_known &= places % BLOCK_ROWS < self.blocks.filled[places // BLOCK_ROWS]
        return places, is_known

    def _place(self, workers: Sequence[int], is_first: list[bool], committed: int) -> tuple[list, list, list]:
        """Places for the rows, those of rows whose episode was abandoned, and the sequences that become complete."""
        places, ends, items = [], [], []
        for i, worker in enumerate(workers):
            stream = self._streams.get(worker)
            if stream is None or (stream.is_broken and not is_first[i]):
                stream = self._streams[worker] = Stream(worker, committed + 1 + i)
            stream.is_broken = False
            row = stream.rows % BLOCK_ROWS
            if is_first[i] and stream.blocks:
                ends.append(stream.blocks[-1] * BLOCK_ROWS + (row or BLOCK_ROWS) - 1)
            if not row:
                self._open_block(stream)
            places.append(stream.blocks[-1] * BLOCK_ROWS + row)
            stream.rows += 1
            start = stream.rows - self._length
            if start >= 0:
                items.append(stream.blocks[start // BLOCK_ROWS] * BLOCK_ROWS + start % BLOCK_ROWS)
                ...
        return places, ends, items
