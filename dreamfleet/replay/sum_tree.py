"""A sum tree with wide nodes: weights that can be drawn from and changed many at a time."""

import numpy as np


class SumTree:
    """Weights in groups of `width`; every level holds the sums of the groups of the level below.

    Sums are made anew from the weights at every change, so that no error builds up.
    """

    def __init__(self, groups: int, width: int):
        self._width = width
        self._levels = [np.zeros((groups, width))]
        while len(self._levels[-1]) > 1:
            groups = -(-len(self._levels[-1]) // width)
            self._levels.append(np.zeros((groups, width)))

    @property
    def total(self) -> float:
        return float(self._levels[-1].sum())

    @property
    def weights(self) -> np.ndarray:
        """All weights, [groups, width]."""
        return self._levels[0]

    def set(self, groups: np.ndarray, weights: np.ndarray) -> None:
        """Replaces the weights of some groups, [n, width]."""
        self._levels[0][groups] = weights
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            level.reshape(-1)[groups] = below[groups].sum(1)
            groups = np.unique(groups // self._width)

    def find(self, fractions: np.ndarray) -> np.ndarray:
        """The index of the weight at each fraction (in [0, 1)) of the total, which must not be 0."""
        rest = fractions * self.total
        each = np.arange(len(fractions))
        index = np.zeros(len(fractions), np.int64)
        for level in reversed(self._levels):
            weights = level[index]
            ends = np.add.accumulate(weights, 1)
            # Rounding must not lead beyond the last weight that is not 0.
            rest = np.minimum(rest, np.nextafter(ends[:, -1], 0.0))
            child = (ends > rest[:, None]).argmax(1)
            rest = np.maximum(rest - (ends[each, child] - weights[each, child]), 0.0)
            index = index * self._width + child
        return index
