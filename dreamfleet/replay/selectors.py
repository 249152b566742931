"""Which sequences are sampled: uniformly, recent ones rather, those of high priority rather, or a mixture."""

from collections.abc import Iterable

import numpy as np

from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.errors import ReplayError
from dreamfleet.options.replay import SamplingOptions
from dreamfleet.replay.blocks import Blocks, Items
from dreamfleet.replay.sum_tree import SumTree


class Selector:
    """Draws the places where sequences begin, each independently of the others."""

    def __init__(self, options: SamplingOptions, blocks: Blocks, items: Items, rows: int):
        self._fractions = fractions(options)
        self._items = items
        self._recency_exponent = options.recency_exponent
        self.priorities = Priorities(options, blocks, rows) if self._fractions[2] else None

    def draw(self, rng: np.random.Generator, count: int, is_zeroed: bool = False) -> np.ndarray:
        """`count` places out of those of all items; `is_zeroed` says that the caller sets their priorities to 0."""
        uniform, recency, priority = rng.multinomial(count, self._fractions)
        ages = [rng.integers(0, len(self._items), uniform)] if uniform else []
        ages += [draw_ages(rng, len(self._items), self._recency_exponent, recency)] if recency else []
        drawn = [self._items[len(self._items) - 1 - age] for age in ages]
        if priority and self.priorities:
            drawn.append(places := self.priorities.draw(rng, priority, is_zeroed))
            # When every priority is 0, one is as good as another.
            drawn.append(self._items[rng.integers(0, len(self._items), priority - len(places))])
        return np.concatenate(drawn)


def draw_ages(rng: np.random.Generator, items: int, exponent: float, count: int) -> np.ndarray:
    """Ages in [0, items) with P(age) in proportion to the integral of x ** -exponent from age + 1 to age + 2."""
    u, power = rng.random(count), 1.0 - exponent
    if abs(power) < 1e-9:
        x = (items + 1.0) ** u
    else:
        x = (1.0 + u * ((items + 1.0) ** power - 1.0)) ** (1.0 / power)
    return np.minimum(x.astype(np.int64) - 1, items - 1)


class Priorities:
    """Priorities of steps, and the sum tree of the weights of the sequences that they give.

    With p = priority ** exponent of each step, a sequence's weight is

        max_fraction * max(p) + (1 - max_fraction) * mean(p).

    Sequences with a step of infinite priority, such as a new one, come before all others, each as likely as another.

    Weights are kept by block: when a step changes, those of its block and of the blocks that reach it are made anew,
    all together before the next draw.
    """

    def __init__(self, options: SamplingOptions, blocks: Blocks, rows: int):
        self._options = options
        self._blocks = blocks
        self._initial = float(options.priority_initial) ** options.priority_exponent
        self._powers = np.full((rows // BLOCK_ROWS, BLOCK_ROWS), self._initial, np.float32)
        self._tree = SumTree(rows // BLOCK_ROWS, BLOCK_ROWS)
        # 1 for each sequence of infinite priority, which has no weight in the other tree.
        self._first = SumTree(rows // BLOCK_ROWS, BLOCK_ROWS) if np.isinf(self._initial) else None
        self._changed: set[int] = set()

    def begin(self, first: int, priorities: np.ndarray) -> None:
        """Takes the priorities of a segment that begins at place `first`."""
        block = first // BLOCK_ROWS
        powers = self._power(priorities).reshape(-1, BLOCK_ROWS)
        self._powers[block : block + len(powers)] = powers
        self._changed.update(range(block, block + len(powers)))

    def drop(self, first: int, end: int) -> None:
        """Forgets a range of blocks."""
        self._powers[first:end] = self._initial
        self._changed.difference_update(range(first, end))
        for tree in filter(None, (self._tree, self._first)):
            tree.set(np.arange(first, end), np.zeros((end - first, BLOCK_ROWS)))

    def note_items(self, places: Iterable[int]) -> None:
        """Hears of sequences that are complete now."""
        self._changed.update(place // BLOCK_ROWS for place in places)

    def set(self, places: np.ndarray, priorities: np.ndarray) -> None:
        """Gives steps other priorities."""
        if not (priorities >= 0).all() or np.isinf(priorities).any():
            raise ReplayError("a priority is negative or not finite; the update was not applied to priorities")
        self._powers.reshape(-1)[places] = self._power(priorities)
        blocks = places // BLOCK_ROWS
        blocks = np.array(list(dict.fromkeys(blocks[np.diff(blocks, prepend=-1) != 0].tolist())))  # each once
        for _ in range(self._blocks.reach + 1):
            self._changed.update(blocks.tolist())
            blocks = self._blocks.previous[blocks]
            blocks = blocks[blocks >= 0]

    def draw(self, rng: np.random.Generator, count: int, is_zeroed: bool) -> np.ndarray:
        """Places of sequences: `count`, or fewer where no other has any weight."""
        first = self._draw_first(rng, count, is_zeroed)
        self._refresh()
        rest = self._tree.find(rng.random(count - len(first))) if self._tree.total > 0.0 else first[:0]
        return np.concatenate([first, rest])

    def _draw_first(self, rng: np.random.Generator, count: int, is_zeroed: bool) -> np.ndarray:
        """Places of sequences with infinite priority, as far as there are any."""
        places = np.zeros(0, np.int64)
        while self._first and len(places) < count:
            self._refresh()
            if not self._first.total:
                break
            # One at a time where that settles the priority of others too, which share steps with it.
            most = 1 if is_zeroed else min(count, int(self._first.total))
            drawn = self._first.find(rng.random(most))
            places = np.concatenate([places, drawn])
            if not is_zeroed:
                break
            steps = self._blocks.sequences(drawn).reshape(-1)
            self.set(steps, np.zeros(len(steps), np.float32))
        return places

    def _power(self, priorities: np.ndarray) -> np.ndarray:
        return np.asarray(priorities, np.float32) ** np.float32(self._options.priority_exponent)

    def _refresh(self) -> None:
        if not self._changed:
            return
        blocks = np.fromiter(self._changed, np.int64, len(self._changed))
        self._changed.clear()
        length = self._blocks.length
        chain = self._blocks.follow(blocks)
        steps = self._powers[chain].reshape(len(blocks), -1)
        is_start = np.arange(BLOCK_ROWS) < self._blocks.count_starts(chain)[:, None]
        if self._first:
            is_infinite = np.isinf(steps)
            is_first = is_start & sliding_max(is_infinite, length)[:, :BLOCK_ROWS]
            self._first.set(blocks, is_first)
            steps, is_start = np.where(is_infinite, 0, steps), is_start & ~is_first
        sums = np.zeros((len(blocks), steps.shape[1] + 1))
        np.add.accumulate(steps, 1, np.float64, out=sums[:, 1:])
        weights = (sums[:, length : length + BLOCK_ROWS] - sums[:, :BLOCK_ROWS]) / length
        if self._options.priority_max:
            most = sliding_max(steps, length)[:, :BLOCK_ROWS]
            weights = self._options.priority_max * most + (1 - self._options.priority_max) * weights
        self._tree.set(blocks, np.where(is_start, np.maximum(weights, 0.0), 0.0))


def encode(priorities: np.ndarray) -> np.ndarray:
    """Priorities as segments keep them, where 0 is that of a step that was never given one."""
    return np.where(priorities > 0, priorities, np.float32(-1.0))


def decode(kept: np.ndarray, initial: float) -> np.ndarray:
    """Priorities from what a segment keeps."""
    return np.where(kept == 0, np.float32(initial), np.maximum(kept, np.float32(0.0)))


def sliding_max(values: np.ndarray, width: int) -> np.ndarray:
    """The largest of each `width` neighbours along the last axis."""
    # Windows of powers of two, each made from two of half its size; two of them that overlap cover the width.
    size = 1
    while 2 * size <= width:
        values = np.maximum(values[:, :-size], values[:, size:])
        size *= 2
    rest = width - size
    return np.maximum(values[:, : values.shape[1] - rest], values[:, rest:])


def fractions(options: SamplingOptions) -> np.ndarray:
    """The share of sequences that each rule draws."""
    weights = np.array([options.uniform, options.recency, options.priority], np.float64)
    if not (weights >= 0).all() or not weights.sum():
        raise ReplayError(f"weights {weights.tolist()} of uniform, recency, priority must be >= 0, and not all 0")
    return weights / weights.sum()
