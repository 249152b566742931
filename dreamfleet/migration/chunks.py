"""The reference's replay buffer: chunks of rows, each with the name of the one that continues it."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from dreamfleet.errors import ReplayError
from dreamfleet.replay import Store
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.episodes import CHUNK_ROWS, read_episode
from dreamfleet.replay.schema import Schema

DETER, STOCH = "dyn/deter", "dyn/stoch"  # recurrent states, which both store under the same names
LATENTS = ("dyn/", "enc/", "dec/")  # others of the reference's, which ours has no counterpart of


def count_rows(chunks: Iterable[Path]) -> int:
    return sum(int(path.stem.split("-")[3]) for path in chunks)


def import_chunks(chunks: list[Path], store: Store) -> tuple[int, dict[Path, str]]:
    """Adds chunks to a store, each chain of them as one trajectory; returns the rows, and what was left out and why.

    Rows are alike in a store: what differs from the newest chunk is left out.
    """
    rows, left = 0, dict.fromkeys(chunks, "it has no beginning: it is named as what continues itself")
    schema = _newest_schema(chunks)
    workers = itertools.count(-1 - store.committed, -1)
    for chain in find_chains(chunks):
        worker = next(workers)
        for path in chain:
            del left[path]
            try:
                batch = read_chunk(path)
                if difference := schema.difference(Schema.of_batch(batch)) if schema else "":
                    raise ReplayError(f"its rows are not like those of the newest chunk: {difference}")
            except ReplayError as error:
                left[path] = str(error).removeprefix(f"{path} ")
                worker = next(workers)  # what follows does not continue what came before
                continue
            count = len(batch["is_first"])
            for start in range(0, count, CHUNK_ROWS):
                part = {key: value[start : start + CHUNK_ROWS] for key, value in batch.items()}
                store.add_many(part, [worker] * len(part["is_first"]))
            rows += count
    return rows, left


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
    read = read_episode(path)
    batch = {key: value for key, value in read.items() if not key.startswith(LATENTS)}
    batch = {key: value.astype(np.float32) if value.dtype == np.float64 else value for key, value in batch.items()}
    if DETER in read and read.get(STOCH, read[DETER]).ndim == 3:  # what the context of a sequence starts from
        largest = np.finfo(np.float16).max
        batch[DETER] = read[DETER].clip(-largest, largest).astype(np.float16)
        batch[STOCH] = read[STOCH].argmax(-1).astype(np.uint8)  # one-hot there, and its number here
    return batch


def _newest_schema(chunks: list[Path]) -> Schema | None:
    for path in reversed(chunks):
        try:
            return Schema.of_batch(read_chunk(path))
        except ReplayError:
            continue
    return None
