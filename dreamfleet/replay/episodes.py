"""Episodes of a store as NPZ files, one an episode, and back: for other tools and for offline data."""

import contextlib
import itertools
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dreamfleet.base.keys import is_logged
from dreamfleet.errors import ReplayError
from dreamfleet.replay.archive import Archive
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.store import Store

CHUNK_ROWS = 64
FOREIGN = ("stepid", "consec", "reset", "envid", "is_eval")  # keys that belong to a message, not to a row


def export_episodes(archive: Archive, directory: Path) -> int:
    """Writes every episode, also those that lost their beginning or have no end yet; returns their number."""
    directory.mkdir(parents=True, exist_ok=True)
    count = 0
    for count, (trajectory, segments, rows) in enumerate(archive.episodes(), 1):
        name = f"trajectory{trajectory:05d}-episode{count:07d}-{len(rows)}.npz"
        columns: dict[str, Any] = archive.read(segments, rows)
        np.savez_compressed(directory / name, **columns)
    return count


def import_episodes(files: Iterable[Path], store: Store) -> tuple[int, int]:
    """Adds episodes to a store; returns the numbers of episodes and steps.

    Those that were exported from one trajectory make up one again; files from elsewhere follow each other in order.
    """
    episodes, steps = 0, 0
    workers: dict[str, int] = {}
    free = itertools.count(-1 - store.committed, -1)  # environments have numbers from 0, earlier imports higher ones
    for path in files:
        batch = read_episode(path)
        count = len(batch["is_first"])
        trajectory = match[0] if (match := re.match(r"trajectory\d+-episode", path.name)) else ""
        # Without its beginning, an episode cannot follow the one before.
        if trajectory not in workers or not batch["is_first"][0]:
            workers[trajectory] = next(free)
        worker = workers[trajectory]
        for start in range(0, count, CHUNK_ROWS):
            rows = {name: value[start : start + CHUNK_ROWS] for name, value in batch.items()}
            try:
                store.add_many(rows, [worker] * len(rows["is_first"]))
            except ReplayError as error:
                raise ReplayError(f"{path} cannot be imported: {error}") from error
        episodes, steps = episodes + 1, steps + count
    return episodes, steps


def read_episode(path: Path) -> Batch:
    """The rows of an episode; flags that the file does not have are made up."""
    with _opened(path) as file:
        names = [name for name in file.files if not is_logged(name) and name not in FOREIGN]
        batch = {name: file[name] for name in names}
    lengths = {name: value.shape[:1] for name, value in batch.items()}
    if len(set(lengths.values())) != 1 or not all(lengths.values()) or (0,) in lengths.values():
        raise ReplayError(f"{path} needs arrays with one row a step, as many in each; it has {lengths}")
    (count,) = next(iter(lengths.values()))
    made_up = {name: np.zeros(count, bool) for name in ("is_first", "is_last", "is_terminal")}
    made_up["is_first"][0] = made_up["is_last"][-1] = True
    return {**made_up, **batch}


def find_episodes(paths: Iterable[Path]) -> Iterator[Path]:
    """NPZ files, and those in directories, in the order of their names."""
    for path in paths:
        found = sorted(path.glob("*.npz")) if path.is_dir() else [path]
        if not found:
            raise ReplayError(f"{path} holds no NPZ files")
        yield from found


def split_episodes(files: list[Path], held_out: float, seed: int) -> tuple[list[Path], list[Path]]:
    """Those for training, and a share that is held out of it, in the order that they had; at least one of each."""
    if held_out and len(files) < 2:
        raise ReplayError(f"none of {len(files)} episodes can be held out; at least one is needed for training")
    count = min(max(1, round(held_out * len(files))), len(files) - 1) if held_out else 0
    chosen = set(np.random.default_rng(seed).permutation(len(files))[:count].tolist())
    train = [path for index, path in enumerate(files) if index not in chosen]
    return train, [files[index] for index in sorted(chosen)]


def count_steps(files: Iterable[Path]) -> int:
    """Steps in files, of which no more than one array is read."""
    steps = 0
    for path in files:
        with _opened(path) as file:
            steps += len(file["is_first" if "is_first" in file.files else file.files[0]]) if file.files else 0
    return steps


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except (OSError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ReplayError(f"{path} is not an NPZ file of arrays ({error})") from error
