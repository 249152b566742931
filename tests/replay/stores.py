"""Stores for tests, in memory and on disk, and rows that say who they are."""

import contextlib

import numpy as np

from dreamfleet.replay import Store
from dreamfleet.replay.segment import BLOCK_ROWS

__all__ = ["BLOCK_ROWS", "add", "all_rows", "fill", "make_row", "open_store", "stack"]


@contextlib.contextmanager
def open_store(length=10, capacity=1000, **options):
    """A store that is closed at the end; with a directory it is on disk."""
    with Store(length, capacity, **{"sync_every": 0.0, **options}) as store:
        yield store


def make_row(n, is_first=False, is_last=False) -> dict:
    return {
        "n": np.int64(n),
        "vector": np.array([n, -n, 0.5], np.float32),
        "is_first": np.bool_(is_first),
        "is_last": np.bool_(is_last),
    }


def stack(rows) -> dict:
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def add(store, numbers, worker=0, **flags) -> None:
    """Rows of one worker, one call each."""
    for n in numbers:
        store.add(make_row(n, **flags), worker)


def fill(store, count, worker=0, start=0) -> None:
    add(store, range(start, start + count), worker)


def all_rows(store) -> dict:
    """Every row that the store holds, by its number `n`, read past its own methods."""
    rows = {}
    inner = store._rows
    for segment in inner.pool.live.values() if inner else ():
        for i in np.flatnonzero(segment.numbers):
            row = {name: np.array(column[i]) for name, column in segment.columns.items()}
            assert int(row["n"]) not in rows, "a row is there twice"
            rows[int(row["n"])] = row
    return rows
