"""Reading a store without being its writer: the trajectories and episodes in it, for `dreamfleet replay`."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.base.logdir import TRAIN_REPLAY
from dreamfleet.errors import ReplayError
from dreamfleet.replay.blocks import Blocks
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.gather import PATIENCE_S, gather
from dreamfleet.replay.recovery import link
from dreamfleet.replay.schema import Schema
from dreamfleet.replay.segment import SUFFIX, Segment, open_segment
from dreamfleet.replay.state import open_state


class Archive:
    """The committed rows of a store at the moment of opening; the store may be in use meanwhile."""

    def __init__(self, directory: str | Path):
        self.directory = find_store(Path(directory).expanduser())
        state = open_state(self.directory / "state", is_writable=False)
        self.committed, self.capacity = state.committed, state.capacity
        self._segments = list(open_segments(self.directory, state.store_id, lambda path: open_segment(str(path))))
        self.bytes = sum(segment.layout.size for segment in self._segments)
        rows = self._segments[0].layout.rows if self._segments else BLOCK_ROWS
        blocks = Blocks(len(self._segments) * rows // BLOCK_ROWS, length=1)
        slots = list(enumerate(self._segments))
        self._chains = [chain["block"] for chain in link(slots, self.committed, blocks)]
        self._filled = blocks.filled

    @property
    def schema(self) -> Schema:
        """What the rows look like."""
        if not self._segments:
            raise ReplayError(f"{self.directory} holds no steps yet")
        return self._segments[-1].layout.schema

    @property
    def steps(self) -> int:
        return int(self._filled.sum())

    def count_sequences(self, length: int) -> int:
        """How many sequences of so many steps can be sampled."""
        return sum(max(0, int(self._filled[chain].sum()) - length + 1) for chain in self._chains)

    def trajectories(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The segments and rows of each gap-free run of steps, for `read`."""
        for chain in self._chains:
            segments, blocks = np.divmod(chain, self._segments[0].layout.blocks)
            filled = self._filled[chain]
            offsets = np.arange(filled.sum()) - np.repeat(np.cumsum(filled) - filled, filled)
            yield np.repeat(segments, filled), np.repeat(blocks, filled) * BLOCK_ROWS + offsets

    def episodes(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The same, cut where episodes begin, with the trajectory's place in order.

        The first episode of a trajectory may have lost its beginning, the last may have no end yet.
        """
        for index, (segments, rows) in enumerate(self.trajectories()):
            firsts = np.flatnonzero(self.column("is_first", segments, rows)[1:]) + 1
            for part in zip(np.split(segments, firsts), np.split(rows, firsts), strict=True):
                yield index, *part

    def read(self, segments: np.ndarray, rows: np.ndarray) -> Batch:
        """All columns of some rows."""
        return self._gather(segments, rows, self.schema.columns)

    def column(self, name: str, segments: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """One column of some rows."""
        return self._gather(segments, rows, [name])[name]

    def _gather(self, segments: np.ndarray, rows: np.ndarray, names: Iterable[str]) -> Batch:
        by_index = dict(enumerate(self._segments))
        # Where a writer was killed amid an update, nobody ends it before the store is opened again.
        data = gather(by_index, segments, rows, names=names, patience_s=PATIENCE_S, takes_torn=True)
        assert data is not None
        return data


def find_store(directory: Path) -> Path:
    """The store that a directory holds: its own, or the training data of a replay or log directory."""
    for place in (directory, directory / "train", directory / TRAIN_REPLAY):
        if (place / "state").is_file():
            return place
    raise ReplayError(f"{directory} holds no replay; name a log directory, or LOGDIR/{TRAIN_REPLAY}")


def open_segments(directory: Path, store_id: bytes, open_one: Callable[[Path], Segment]) -> Iterator[Segment]:
    """The segments of a store that can be read, oldest first."""
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        try:
            segment = open_one(path)
        except (OSError, ValueError):
            continue  # evicted since it was listed, or damaged: its writer sets it aside
        if segment.id[:8] == store_id:
            yield segment
