"""The live segments of a store: the next one is prepared ahead, the oldest is evicted, all are synced now and then."""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from dreamfleet import lifecycle
from dreamfleet.base import waits
from dreamfleet.errors import NoSpace, ReplayError
from dreamfleet.replay.disk import DiskFiles
from dreamfleet.replay.ram import RamFiles
from dreamfleet.replay.segment import Segment
from dreamfleet.replay.space import Geometry, format_bytes

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EFAULT, errno.ENOMEM)


class SegmentPool:
    """Segments by serial, in as many slots as may be live at once; the caller's lock guards everything but `sync`."""

    def __init__(self, files: DiskFiles | RamFiles, geometry: Geometry, on_evict: Callable[[int], None]):
        self.layout = geometry.layout
        self.slots = geometry.segments
        self.live: dict[int, Segment] = {}  # by serial, oldest first
        self.changed: set[int] = set()  # serials of those with rows to sync; what `update` writes can be lost
        self.serials = np.full(self.slots, -1, np.int64)  # by slot
        self._files = files
        self._on_evict = on_evict
        self._next_serial = 0
        self._prepared: Future[Segment] | None = None
        self._worker = ThreadPoolExecutor(2, "replay-segments")
        self._sync_lock = threading.Lock()

    @property
    def oldest(self) -> int:
        """The lowest serial that is still there."""
        return next(iter(self.live), self._next_serial)

    def adopt(self, segments: list[Segment]) -> None:
        """Takes the newest of the segments that exist, oldest first; those without rows are not needed.

        Their serials are used again: one that is left out counts as a segment when it comes to evicting the oldest.
        """
        used = [segment for segment in segments if segment.numbers.any()]
        self._next_serial = used[-1].serial + 1 if used else 0
        kept = [segment for segment in used if segment.serial >= used[-1].serial + 1 - self.slots]
        for segment in segments:
            if segment in kept:
                self._enter(segment)
            else:
                self._files.delete(segment)
        self.changed = set(self.live)  # rows that were forgotten on opening must not come back from the disk

    def rotate(self) -> Segment:
        """The next segment to write to; when all slots are taken, the oldest is evicted for it."""
        prepared = self._prepared or self._prepare()
        self._prepared = None  # after a failure the next call tries again
        with lifecycle.waiting(waits.SEGMENT(place=self._files.place)):
            try:
                segment = prepared.result()
            except OSError as error:
                raise self._explain(error) from error
        self._next_serial = segment.serial + 1
        self._prepared = self._prepare()
        self._evict_before(segment.serial + 1 - self.slots)
        self._enter(segment)
        return segment

    def sync(self, lock: threading.RLock, committed: Callable[[], int]) -> None:
        """Forces what was changed since the last time to the disk, without holding the lock meanwhile."""
        with self._sync_lock:
            with lock:
                changed, self.changed = self.changed, set()
                segments = [self.live[serial] for serial in changed if serial in self.live]
                number = committed()
            try:
                self._files.sync(segments, number)
            except OSError:
                with lock:
                    self.changed |= changed
                raise

    def close(self) -> None:
        """Ends what goes on in the background; a segment that was made ahead is given back."""
        self._worker.shutdown()
        if self._prepared and not self._prepared.exception():
            self._files.delete(self._prepared.result())

    def _explain(self, error: OSError) -> OSError | ReplayError:
        if error.errno not in NO_SPACE:
            return error
        size = format_bytes(self.layout.size)
        return NoSpace(
            f"{self._files.place} has no room for another {size} of steps ({error.strerror}); "
            "free some space, or lower replay.capacity"
        )

    def _prepare(self) -> Future[Segment]:
        return self._worker.submit(self._files.create, self.layout, self._next_serial)

    def _enter(self, segment: Segment) -> None:
        self.live[segment.serial] = segment
        self.serials[segment.serial % self.slots] = segment.serial

    def _evict_before(self, serial: int) -> None:
        for old in [old for old in self.live if old < serial]:
            self._on_evict(old % self.slots)
            self.serials[old % self.slots] = -1
            segment = self.live.pop(old)
            self._files.delete(segment)
            self._worker.submit(id, segment)  # the last to let go of a mapping waits while it is undone
