"""The reference's replay buffer: chunks of rows, each with the name of the one that continues it."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from dreamfleet.replay import Store
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.episodes import CHUNK_ROWS, read_episode

LATENTS = ("dyn/", "enc/", "dec/")  # the reference's recurrent states, which ours are computed anew for


def count_rows(chunks: Iterable[Path]) -> int:
    return sum(int(path.stem.split("-")[3]) for path in chunks)


def import_chunks(chunks: list[Path], store: Store) -> int:
    """Adds all chunks to a store, each chain of them as one trajectory; returns the number of rows."""
    rows = 0
    workers = itertools.count(-1 - store.committed, -1)
    for chain in find_chains(chunks):
        worker = next(workers)
        for batch in map(read_chunk, chain):
            count = len(batch["is_first"])
            for start in range(0, count, CHUNK_ROWS):
                part = {key: value[start : start + CHUNK_ROWS] for key, value in batch.items()}
                store.add_many(part, [worker] * len(part["is_first"]))
            rows += count
    return rows


def find_chains(chunks: list[Path]) -> Iterator[list[Path]]:
    """Chunks that continue each other, oldest first; a chunk whose predecessor is gone begins a chain."""
    by_id = {path.stem.split("-")[1]: path for path in chunks}
    followers = {path.stem.split("-")[2] for path in chunks}
    for first in (path for path in chunks if path.stem.split("-")[1] not in followers):
        chain: dict[Path, None] = {}
        following: Path | None = first
        while following and following not in chain:
            chain[following] = None
            following = by_id.get(following.stem.split("-")[2])
        yield list(chain)


def read_chunk(path: Path) -> Batch:
    """The rows of a chunk as ours have them."""
    batch = {key: value for key, value in read_episode(path).items() if not key.startswith(LATENTS)}
    return {key: value.astype(np.float32) if value.dtype == np.float64 else value for key, value in batch.items()}
