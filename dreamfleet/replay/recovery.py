"""What the segments of a store say when it is opened: which rows count, how blocks follow each other, open streams."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dreamfleet.replay.blocks import Blocks, Items
from dreamfleet.replay.segment import BLOCK_ROWS, Segment


@dataclass(slots=True, eq=False)
class Stream:
    """The rows of one environment that follow each other without a gap, and where the next one goes."""

    worker: int
    number: int  # that of its first row, by which it is known
    index: int = 0  # blocks that it has had so far
    blocks: deque[int] = field(default_factory=deque)  # those that are still there
    rows: int = 0  # in these blocks
    unseen: int = 0  # of these, the rows since the last sequence for the online queue
    is_broken: bool = False  # rows were lost: only the beginning of an episode may follow


def clean(segment: Segment, committed: int) -> None:
    """Forgets rows that were written but not committed; raises ValueError if the tables cannot be right."""
    numbers = segment.numbers
    if (numbers > committed).any():
        numbers[numbers > committed] = 0
    table = numbers.reshape(-1, BLOCK_ROWS)
    filled = count_filled(segment)
    if not ((table > 0) == (np.arange(BLOCK_ROWS) < filled[:, None])).all():
        raise ValueError("a block has unused rows between used ones")
    if not ((table[:, 1:] > table[:, :-1]) | (table[:, 1:] == 0)).all():
        raise ValueError("the rows of a block are out of order")
    used = filled > 0
    streams = segment.owners["stream"][used]
    if not ((streams > 0) & (streams <= table[used, 0])).all():
        raise ValueError("a block does not fit its stream")


def count_filled(segment: Segment) -> np.ndarray:
    """Rows in each block."""
    return np.count_nonzero(segment.numbers.reshape(-1, BLOCK_ROWS), 1)


def restore(segments: Iterable[tuple[int, Segment]], blocks: Blocks, items: Items) -> list[Stream]:
    """Fills `blocks` and `items` from segments (with their slots); returns the newest stream of each environment."""
    table = _read_owners(segments, blocks)
    if not len(table):
        return []
    table = table[np.lexsort((table["index"], table["stream"]))]
    filled = blocks.filled[table["block"]]
    follows = (
        (table["stream"][1:] == table["stream"][:-1])
        & (table["index"][1:] == table["index"][:-1] + 1)
        & (filled[:-1] == BLOCK_ROWS)
    )
    blocks.next[table["block"][:-1][follows]] = table["block"][1:][follows]
    blocks.previous[table["block"][1:][follows]] = table["block"][:-1][follows]
    items.add(_order_items(table["block"], segments, blocks))
    return _newest_streams(table, filled, np.flatnonzero(~follows) + 1)


def _read_owners(segments: Iterable[tuple[int, Segment]], blocks: Blocks) -> np.ndarray:
    kind = [("worker", np.int64), ("stream", np.uint64), ("index", np.int64), ("block", np.int64)]
    tables = []
    for slot, segment in segments:
        first = slot * segment.layout.blocks
        filled = count_filled(segment)
        blocks.filled[first : first + len(filled)] = filled
        used = np.flatnonzero(filled)
        table = np.empty(len(used), kind)
        for name in ("worker", "stream", "index"):
            table[name] = segment.owners[name][used]
        table["block"] = first + used
        tables.append(table)
    return np.concatenate(tables) if tables else np.empty(0, kind)


def _order_items(used: np.ndarray, segments: Iterable[tuple[int, Segment]], blocks: Blocks) -> np.ndarray:
    """The places where sequences begin, ordered by the number of their last row."""
    starts = blocks.count_starts(blocks.follow(used))
    ends = np.cumsum(starts)
    rows = np.arange(ends[-1]) - np.repeat(ends - starts, starts)
    places = np.repeat(used, starts) * BLOCK_ROWS + rows
    last = rows + blocks.length - 1
    block = np.repeat(used, starts)
    for hop in range(blocks.reach):
        block = np.where(last >= (hop + 1) * BLOCK_ROWS, blocks.next[block], block)
    last_places = block * BLOCK_ROWS + last % BLOCK_ROWS
    numbers = np.zeros(len(blocks.filled) * BLOCK_ROWS, np.uint64)
    for slot, segment in segments:
        numbers[slot * segment.layout.rows :][: segment.layout.rows] = segment.numbers
    return places[np.argsort(numbers[last_places], kind="stable")]


def _newest_streams(table: np.ndarray, filled: np.ndarray, breaks: np.ndarray) -> list[Stream]:
    newest: dict[int, Stream] = {}
    for part, rows in zip(np.split(table, breaks), np.split(filled, breaks), strict=True):
        worker, number, index = int(part["worker"][0]), int(part["stream"][0]), int(part["index"][-1]) + 1
        if worker not in newest or (number, index) > (newest[worker].number, newest[worker].index):
            newest[worker] = Stream(worker, number, index, deque(part["block"].tolist()), int(rows.sum()))
    return list(newest.values())
