"""The replay store: streams of rows in segment files, which the replay role writes, samples and updates.

A batch is written into blocks that belong to one stream each, then its rows get their numbers, then one record commits
them all: whoever opens the segments after a kill finds every committed row and nothing else.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from dreamfleet.errors import ReplayError
from dreamfleet.replay.blocks import Blocks, Items
from dreamfleet.replay.contract import Batch
from dreamfleet.replay.disk import DiskFiles
from dreamfleet.replay.gather import STEP_ID_BYTES, gather, make_step_ids, split_step_ids
from dreamfleet.replay.pool import SegmentPool
from dreamfleet.replay.ram import RamFiles
from dreamfleet.replay.recovery import Stream, clean, count_filled, restore
from dreamfleet.replay.schema import Schema
from dreamfleet.replay.segment import BLOCK_ROWS, Layout, Segment
from dreamfleet.replay.selectors import Selection, Selector
from dreamfleet.replay.space import check_fit, choose_capacity, format_bytes, plan

log = logging.getLogger("dreamfleet.replay")


class Store:
    """Keeps the newest `capacity` steps and samples sequences of `length` rows; thread-safe.

    A sequence never leaves its stream. It may cross an episode's end; where an episode was abandoned (the next row is a
    first one), the row before is marked as last. Without a directory the store is in memory. Without a capacity it is
    chosen from `steps`, the steps that the run will have, and from the space that there is.
    """

    def __init__(
        self,
        length: int,
        capacity: int = 0,
        *,
        directory: str | Path | None = None,
        steps: int = 0,
        selection: Selection | None = None,
        online: bool = False,
        sync_every: float = 30.0,
        truncates: bool = False,
        seed: int = 0,
    ):
        if 0 < capacity < length:
            raise ReplayError(f"capacity={capacity} cannot hold one sequence of length={length}; raise the capacity")
        self.length = length
        self.capacity = capacity
        self._steps = steps
        self._selection = selection or Selection()
        self._has_online = online
        self._truncates = truncates
        self._seed = seed
        self._rngs: dict[str, np.random.Generator] = {}  # by mode, so that a report leaves training as it was
        self._lock = threading.RLock()
        self._updates_ignored = 0
        self._files = RamFiles() if directory is None else DiskFiles(directory)
        self._schema: Schema | None = None
        segments, self._is_whole = self._files.load()
        self._state = self._files.state
        if segments:
            self._begin(segments[-1].layout.schema, segments)
        self._closing = threading.Event()
        if self._files.is_lasting and sync_every:
            threading.Thread(target=self._sync_loop, args=(sync_every,), name="replay-sync", daemon=True).start()

    def __len__(self) -> int:
        return len(self._items) if self._schema else 0
