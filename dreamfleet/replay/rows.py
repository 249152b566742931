"""The rows of a store: where the next ones of each trajectory go, how they are committed, found again and evicted."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.errors import ReplayError
from dreamfleet.replay.blocks import Blocks, Items
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.disk import DiskFiles
from dreamfleet.replay.gather import split_step_ids
from dreamfleet.replay.pool import SegmentPool
from dreamfleet.replay.ram import RamFiles
from dreamfleet.replay.recovery import Trajectory, clean, find_items, link, newest_trajectories
from dreamfleet.replay.segment import Segment
from dreamfleet.replay.space import Geometry


class Rows:
    """Trajectories in segments of one schema; the store's lock guards it. `on_evict` is told which blocks are gone."""

    def __init__(
        self,
        files: DiskFiles | RamFiles,
        geometry: Geometry,
        length: int,
        *,
        online: bool,
        on_evict: Callable[[int, int], None],
    ):
        self.layout = geometry.layout
        self.pool = SegmentPool(files, geometry, self._evict)
        self.blocks = Blocks(geometry.segments * self.layout.blocks, length)
        self.items = Items(geometry.rows)
        self.steps = 0  # the rows of all blocks
        # New sequences, one after the other in each trajectory, for the online queue if there is one.
        self.unseen: deque[int] = deque(maxlen=None if online else 0)
        self._on_evict = on_evict
        self._state = files.state
        self._length = length
        self._trajectories: dict[int, Trajectory] = {}  # by worker
        self._free: deque[int] = deque()  # blocks to write to

    def adopt(self, segments: list[Segment], is_whole: bool) -> None:
        """Takes the committed rows of segments; without `is_whole` rows may be missing at the ends of trajectories."""
        self.pool.adopt(segments)
        self._restore(is_whole)

    def truncate(self, committed: int) -> None:
        """Forgets the rows after a number."""
        if committed >= self._state.committed:
            return
        self._state.commit(committed, self._state.note)
        for segment in self.pool.live.values():
            clean(segment, committed)
        self.blocks.drop(0, len(self.blocks.filled))
        self.items.drop(0, self.pool.slots * self.layout.rows)
        self._restore(is_whole=False)

    def append(self, batch: Batch, workers: Sequence[int], note: bytes) -> list[int]:
        """Commits rows, in order, to the trajectories of their workers; returns the sequences that they complete."""
        self._make_room(workers)
        committed = self._state.committed
        places, ends, items = self._place(workers, batch["is_first"].tolist(), committed)
        index = np.array(places)
        numbers = np.arange(committed + 1, committed + 1 + len(places), dtype=np.uint64)
        for segment, rows, part in self._parts(index):
            _assign(segment, rows, batch, part)
            segment.numbers[rows] = numbers[part]  # after the columns: what has a number is whole
            self.pool.changed.add(segment.serial)
        for place in ends:
            segment = self._segment(place)
            segment.columns["is_last"][place % self.layout.rows] = True
            self.pool.changed.add(segment.serial)
        self._state.commit(committed + len(places), note)
        self.items.add(items)
        self.steps += len(places)
        return items

    def update(self, places: np.ndarray, columns: Batch) -> None:
        """Overwrites columns of rows that others may be reading: all columns of a row at once, or none."""
        for segment, rows, part in self._parts(places):
            with segment.changing(rows):
                _assign(segment, rows, columns, part)

    def write_priorities(self, places: np.ndarray, priorities: np.ndarray) -> None:
        """Writes priorities at places."""
        for segment, index, part in self._parts(places):
            segment.priorities[index] = priorities[part]

    def count_trajectories(self) -> int:
        """Gap-free runs of rows, closed ones included."""
        return int(np.count_nonzero((self.blocks.filled > 0) & (self.blocks.previous < 0)))

    def locate(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The serials of the segments that places are in, and the rows there."""
        slots, rows = np.divmod(places, self.layout.rows)
        return self.pool.serials[slots], rows

    def find(self, step_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of steps, [n, 20] -> [n], and whether they are still there."""
        stores, serials, rows = split_step_ids(step_ids)
        slots = serials % self.pool.slots
        own = int.from_bytes(self._state.store_id, "little")
        is_known = (stores == own) & (self.pool.serials[slots] == serials)
        is_known &= rows < self.layout.rows
        places = np.where(is_known, slots * self.layout.rows + rows, 0)
        is_known &= places % BLOCK_ROWS < self.blocks.filled[places // BLOCK_ROWS]
        return places, is_known

    def save_unseen(self) -> np.ndarray:
        """Serial and row of each sequence in the online queue, [n, 2]."""
        return np.stack(self.locate(np.array(self.unseen, np.int64)), 1)

    def load_unseen(self, unseen: np.ndarray | None) -> None:
        """Fills the online queue as it was saved, but for rows that are gone; versions before saved none."""
        self.unseen.clear()
        if unseen is None:
            return
        serials, rows = unseen.T
        slots = serials % self.pool.slots
        is_there = self.pool.serials[slots] == serials
        self.unseen.extend((slots * self.layout.rows + rows)[is_there].tolist())

    def _place(self, workers: Sequence[int], is_first: list[bool], committed: int) -> tuple[list, list, list]:
        """Places for the rows, those of rows whose episode was abandoned, and the sequences that become complete."""
        places, ends, items = [], [], []
        trajectories, filled, length = self._trajectories, self.blocks.filled, self._length
        for i, worker in enumerate(workers):
            trajectory = trajectories.get(worker)
            if trajectory is None or trajectory.is_broken:
                trajectory = self._continue(trajectory, worker, is_first[i], committed + 1 + i)
            blocks, row = trajectory.blocks, trajectory.rows % BLOCK_ROWS
            if is_first[i] and blocks:
                ends.append(blocks[-1] * BLOCK_ROWS + (row or BLOCK_ROWS) - 1)
            if not row:
                self._open_block(trajectory)
            block = blocks[-1]
            places.append(block * BLOCK_ROWS + row)
            filled[block] = row + 1
            trajectory.rows += 1
            start = trajectory.rows - length
            if start >= 0:
                items.append(blocks[start // BLOCK_ROWS] * BLOCK_ROWS + start % BLOCK_ROWS)
                if self.unseen.maxlen is None and (trajectory.gone + trajectory.rows) % length == 0:
                    self.unseen.append(items[-1])
        return places, ends, items

    def _continue(self, trajectory: Trajectory | None, worker: int, is_first: bool, number: int) -> Trajectory:
        """The trajectory for a row after a loss, or for the first of a worker."""
        if trajectory and is_first:
            trajectory.is_broken = False
            return trajectory
        self._trajectories[worker] = Trajectory(worker, number)
        return self._trajectories[worker]

    def _open_block(self, trajectory: Trajectory) -> None:
        block = self._free.popleft()
        if trajectory.blocks:
            self.blocks.link(trajectory.blocks[-1], block)
        segment = self._segment(block * BLOCK_ROWS)
        segment.own(block % self.layout.blocks, trajectory.worker, trajectory.number, trajectory.index)
        trajectory.blocks.append(block)
        trajectory.index += 1

    def _make_room(self, workers: Sequence[int]) -> None:
        """Sees to it that there are blocks for the rows, before any of them has a place that could be evicted."""
        if len(workers) <= len(self._free):
            return  # a row needs no more than one
        most = (self.pool.slots - 1) * self.layout.blocks
        while (needed := self._count_blocks(workers)) > len(self._free):
            if needed > most:
                raise ReplayError(f"a batch needs {needed} blocks, but there are only {most}; raise the capacity")
            first = self.pool.rotate().serial % self.pool.slots * self.layout.blocks
            self._free.extend(range(first, first + self.layout.blocks))

    def _count_blocks(self, workers: Sequence[int]) -> int:
        count, rooms = 0, {}  # rows that still fit into the last block of a worker
        for worker in workers:
            room = rooms.get(worker)
            if room is None:
                trajectory = self._trajectories.get(worker)
                room = -trajectory.rows % BLOCK_ROWS if trajectory and not trajectory.is_broken else 0
            count += not room
            rooms[worker] = (room or BLOCK_ROWS) - 1
        return count

    def _evict(self, slot: int) -> None:
        first, end = slot * self.layout.blocks, (slot + 1) * self.layout.blocks
        for trajectory in self._trajectories.values():
            while trajectory.blocks and first <= trajectory.blocks[0] < end:
                trajectory.blocks.popleft()
                rows = min(trajectory.rows, BLOCK_ROWS)
                trajectory.rows, trajectory.gone = trajectory.rows - rows, trajectory.gone + rows
        # Workers that are gone are forgotten with their last row.
        self._trajectories = {worker: each for worker, each in self._trajectories.items() if each.blocks}
        unseen = [place for place in self.unseen if not first <= place // BLOCK_ROWS < end]
        self.unseen = deque(unseen, self.unseen.maxlen)
        self.steps -= int(self.blocks.filled[first:end].sum())
        self.blocks.drop(first, end)
        self.items.drop(first * BLOCK_ROWS, end * BLOCK_ROWS)
        self._on_evict(first, end)

    def _restore(self, is_whole: bool) -> None:
        segments = [(serial % self.pool.slots, segment) for serial, segment in self.pool.live.items()]
        chains = link(segments, self._state.committed, self.blocks)
        self.items.add(find_items(segments, self.blocks))
        self.steps = int(self.blocks.filled.sum())
        self._trajectories = newest_trajectories(chains, self.blocks)
        for trajectory in self._trajectories.values():
            trajectory.is_broken = not is_whole
        if segments:
            first = segments[-1][0] * self.layout.blocks
            unused = np.flatnonzero(self.blocks.filled[first : first + self.layout.blocks] == 0)
            self._free = deque((first + unused).tolist())

    def _parts(self, places: np.ndarray) -> Iterator[tuple[Segment, np.ndarray, slice]]:
        """The segments that places are in, with the rows there and the part of the places."""
        slots, rows = np.divmod(places, self.layout.rows)
        cuts = (slots[1:] != slots[:-1]).nonzero()[0] + 1
        for start, end in itertools.pairwise([0, *cuts.tolist(), len(places)]):
            yield self.pool.live[int(self.pool.serials[slots[start]])], rows[start:end], slice(start, end)

    def _segment(self, place: int) -> Segment:
        return self.pool.live[int(self.pool.serials[place // self.layout.rows])]


def _assign(segment: Segment, rows: np.ndarray, columns: Batch, part: slice) -> None:
    for name, value in columns.items():
        segment.columns[name][rows] = value[part]
