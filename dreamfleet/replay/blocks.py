"""Where rows are: the chains of blocks that make up trajectories, and the sequences that begin in them.

A place is `slot * rows of a segment + row`: the number of a row in all slots that a store has for segments.
"""

import numpy as np

from dreamfleet.base.dimensions import BLOCK_ROWS


class Blocks:
    """The neighbours of each block in its trajectory, and its rows; only the last of a trajectory may not be full."""

    def __init__(self, count: int, length: int):
        self.next = np.full(count, -1, np.int64)
        self.previous = np.full(count, -1, np.int64)
        self.filled = np.zeros(count, np.int64)
        self.length = length  # rows of a sequence
        self.reach = -(-(length - 1) // BLOCK_ROWS)  # further blocks that a sequence may need
        self._offsets = np.arange(length)

    def link(self, before: int, after: int) -> None:
        """Lets `after` continue the trajectory of `before`."""
        self.next[before] = after
        self.previous[after] = before

    def drop(self, first: int, end: int) -> None:
        """Forgets a range of blocks, which must be the first of their trajectories."""
        followers = self.next[first:end]
        self.previous[followers[followers >= 0]] = -1
        self.next[first:end] = self.previous[first:end] = -1
        self.filled[first:end] = 0

    def follow(self, blocks: np.ndarray) -> np.ndarray:
        """Each block and those that a sequence which begins in it may reach, [n, 1 + reach]; -1 where there is none."""
        chain = np.empty((len(blocks), 1 + self.reach), np.int64)
        chain[:, 0] = blocks
        for hop in range(self.reach):
            before = chain[:, hop]
            chain[:, hop + 1] = np.where(before >= 0, self.next[before], -1)
        return chain

    def sequences(self, starts: np.ndarray) -> np.ndarray:
        """The places of the rows of the sequences that begin at `starts`, [n, length]."""
        blocks, rows = np.divmod(starts, BLOCK_ROWS)
        hops, rows = np.divmod(rows[:, None] + self._offsets, BLOCK_ROWS)
        return self.follow(blocks)[np.arange(len(starts))[:, None], hops] * BLOCK_ROWS + rows

    def count_starts(self, chain: np.ndarray) -> np.ndarray:
        """How many rows of the first block of each chain begin a whole sequence."""
        rows = np.where(chain >= 0, self.filled[chain], 0)
        return np.clip(rows.sum(1) - self.length + 1, 0, rows[:, 0])


class Items:
    """The places where a sequence begins, in the order in which the sequences were completed."""

    def __init__(self, capacity: int):
        self._places = np.empty(capacity, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        return self._places[index]

    def add(self, places: list[int] | np.ndarray) -> None:
        end = self._count + len(places)
        self._places[self._count : end] = places
        self._count = end

    def drop(self, first: int, end: int) -> None:
        """Removes those that begin in a range of places."""
        places = self._places[: self._count]
        kept = places[(places < first) | (places >= end)]
        self._places[: len(kept)] = kept
        self._count = len(kept)
