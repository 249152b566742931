"""Segments in anonymous memory files: gone with the process, readable by others on the machine until then."""

import mmap
import os
import weakref
from collections.abc import Iterable

from dreamfleet.replay.segment import Layout, Segment
from dreamfleet.replay.space import memory_room


class RamFiles:
    """The memory of an evicted segment is used again as soon as nobody in this process reads its rows."""

    is_lasting = False
    place = "memory"

    def __init__(self):
        self.state = RamState()
        self._free: list[tuple[mmap.mmap, str]] = []
        self._fds: list[int] = []

    def room(self) -> int:
        return memory_room()

    def load(self) -> tuple[list[Segment], bool]:
        return [], True

    def create(self, layout: Layout, serial: int) -> Segment:
        """A segment in fresh or used memory."""
        if self._free:
            memory, path = self._free.pop()
            segment = Segment(layout, memory, path)
        else:
            memory, path = self._allocate(layout.size)
            segment = Segment(layout, memory, path)
            segment.populate()
        segment.begin(self.state.store_id + serial.to_bytes(8, "big"))
        # Readers hold on to the segment, so that its memory is not written to under their eyes.
        weakref.finalize(segment, self._free.append, (memory, path)).atexit = False
        return segment

    def delete(self, segment: Segment) -> None:
        pass

    def sync(self, segments: Iterable[Segment], number: int) -> None:
        pass

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)

    def _allocate(self, size: int) -> tuple[mmap.mmap, str]:
        fd = os.memfd_create("dreamfleet-replay")
        self._fds.append(fd)
        os.ftruncate(fd, size)
        return mmap.mmap(fd, size), f"/proc/{os.getpid()}/fd/{fd}"


class RamState:
    """What a store on disk keeps in its state file."""

    capacity = 0
    synced = 0

    def __init__(self):
        self.store_id = os.urandom(8)
        self.committed = 0
        self.note = b""

    def commit(self, committed: int, note: bytes) -> None:
        self.committed, self.note = committed, note

    def take_over(self, capacity: int) -> None:
        self.capacity = capacity
