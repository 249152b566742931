"""Opening a store: which rows of its segments count, how blocks follow each other, which trajectories go on."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.replay.blocks import Blocks
from dreamfleet.replay.segment import Segment

Slots = Iterable[tuple[int, Segment]]  # segments with the slots that they are in

_LINK = np.dtype([("worker", np.int64), ("trajectory", np.uint64), ("index", np.int64), ("block", np.int64)])


@dataclass(slots=True, eq=False)
class Trajectory:
    """The rows of one environment that follow each other without a gap, and where the next one goes."""

    worker: int
    number: int  # that of its first row, by which it is known
    index: int = 0  # blocks that it has had so far
    blocks: deque[int] = field(default_factory=deque)  # those that are still there
    rows: int = 0  # in these blocks
    gone: int = 0  # rows that it had before
    is_broken: bool = False  # rows were lost: only the beginning of an episode may follow


def clean(segment: Segment, committed: int) -> None:
    """Forgets rows that were written but not committed; raises ValueError if the tables cannot be right."""
    numbers = segment.numbers
    if (numbers > committed).any():
        numbers[numbers > committed] = 0
    table, filled = numbers.reshape(-1, BLOCK_ROWS), count_filled(segment, committed)
    if not ((table > 0) == (np.arange(BLOCK_ROWS) < filled[:, None])).all():
        raise ValueError("a block has unused rows between used ones")
    if not ((table[:, 1:] > table[:, :-1]) | (table[:, 1:] == 0)).all():
        raise ValueError("the rows of a block are out of order")
    used = filled > 0
    trajectories = segment.owners["trajectory"][used]
    if not ((trajectories > 0) & (trajectories <= table[used, 0])).all():
        raise ValueError("a block does not fit its trajectory")


def count_filled(segment: Segment, committed: int) -> np.ndarray:
    """Committed rows in each block."""
    table = segment.numbers.reshape(-1, BLOCK_ROWS)
    return np.count_nonzero((table > 0) & (table <= committed), 1)


def link(segments: Slots, committed: int, blocks: Blocks) -> list[np.ndarray]:
    """Fills `blocks` from segments; returns the chains of blocks, in order, with whom they belong to."""
    table = np.concatenate([np.empty(0, _LINK), *(_read_owners(*entry, committed, blocks) for entry in segments)])
    table = table[np.lexsort((table["index"], table["trajectory"]))]
    before, after = table[:-1], table[1:]
    follows = (before["trajectory"] == after["trajectory"]) & (before["index"] + 1 == after["index"])
    follows &= blocks.filled[before["block"]] == BLOCK_ROWS
    blocks.next[before["block"][follows]] = after["block"][follows]
    blocks.previous[after["block"][follows]] = before["block"][follows]
    return np.split(table, np.flatnonzero(~follows) + 1) if len(table) else []


def find_items(segments: Slots, blocks: Blocks) -> np.ndarray:
    """The places where sequences begin, ordered by the number of their last row."""
    used = np.flatnonzero(blocks.filled)
    starts = blocks.count_starts(blocks.follow(used))
    rows = np.arange(starts.sum()) - np.repeat(np.cumsum(starts) - starts, starts)
    first = np.repeat(used, starts)
    last, position = first, rows + blocks.length - 1
    for hop in range(blocks.reach):
        last = np.where(position >= (hop + 1) * BLOCK_ROWS, blocks.next[last], last)
    numbers = np.zeros(len(blocks.filled) * BLOCK_ROWS, np.uint64)
    for slot, segment in segments:
        numbers[slot * segment.layout.rows :][: segment.layout.rows] = segment.numbers
    order = np.argsort(numbers[last * BLOCK_ROWS + position % BLOCK_ROWS], kind="stable")
    return (first * BLOCK_ROWS + rows)[order]


def newest_trajectories(chains: Iterable[np.ndarray], blocks: Blocks) -> dict[int, Trajectory]:
    """The trajectory of each environment that its next row belongs to."""
    newest: dict[int, Trajectory] = {}
    for chain in chains:
        worker, number, index = int(chain["worker"][0]), int(chain["trajectory"][0]), int(chain["index"][-1]) + 1
        if worker not in newest or (number, index) > (newest[worker].number, newest[worker].index):
            rows, gone = int(blocks.filled[chain["block"]].sum()), (index - len(chain)) * BLOCK_ROWS
            newest[worker] = Trajectory(worker, number, index, deque(chain["block"].tolist()), rows, gone)
    return newest


def _read_owners(slot: int, segment: Segment, committed: int, blocks: Blocks) -> np.ndarray:
    first, filled = slot * segment.layout.blocks, count_filled(segment, committed)
    blocks.filled[first : first + len(filled)] = filled
    used = np.flatnonzero(filled)
    table = np.empty(len(used), _LINK)
    for name in ("worker", "trajectory", "index"):
        table[name] = segment.owners[name][used]
    table["block"] = first + used
    return table
