"""Stores for tests, in memory and on disk, and rows that say who they are."""

import contextlib

import numpy as np

from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.replay import Store

__all__ = ["BLOCK_ROWS", "add", "all_columns", "all_rows", "fill", "make_row", "open_store", "stack"]


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


def all_columns(store) -> dict:
    """Every row that the store holds, ordered by its number `n`, read past its own methods."""
    segments = store._rows.pool.live.values() if store._rows else ()
    parts = [{name: column[s.numbers > 0] for name, column in s.columns.items()} for s in segments]
    if not parts:
        return {"n": np.zeros(0, np.int64)}
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    assert len(set(columns["n"].tolist())) == len(columns["n"]), "a row is there twice"
    return {name: column[np.argsort(columns["n"])] for name, column in columns.items()}


def all_rows(store) -> dict:
    """The same by number."""
    columns = all_columns(store)
    return {int(n): {name: column[i] for name, column in columns.items()} for i, n in enumerate(columns["n"])}
