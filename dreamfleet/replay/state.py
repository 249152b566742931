"""The state file of a store on disk: which rows count.

A batch is committed by one record, written after its rows: the number of the last row, and a note of the caller's.
After the machine was lost, only what was synced before counts: the file says on which boot its records were written.
"""

import mmap
import struct
from pathlib import Path

from dreamfleet.base.files import replace_file
from dreamfleet.base.records import TwoSlotRecord

NOTE_BYTES = 96

_FIXED = struct.Struct("<8s8s40sQQ")  # magic, store id, boot id, capacity, number of the last synced row
_SYNCED_AT = _FIXED.size - 8
_FIELDS = f"QH{NOTE_BYTES}s"  # number of the last row, length of the note, note
_SLOTS = (512, 1024)
_MAGIC = b"DFSTATE\x01"


class StoreState:
    """What a store knows of itself; `committed` and `note` are of the last record."""

    def __init__(self, memory: mmap.mmap):
        self._memory = memory
        magic, self.store_id, boot, self.capacity, self.synced = _FIXED.unpack_from(memory)
        if magic != _MAGIC:
            raise ValueError("it is not the state of a replay store")
        self.is_same_boot = boot.rstrip(b"\0") == boot_id()
        self._record = TwoSlotRecord(memory, _SLOTS, _FIELDS)
        self.committed, length, note = self._record.read() or (0, 0, b"")
        self.note = note[:length]
        if not self.is_same_boot:
            self.committed = min(self.committed, self.synced)

    def commit(self, committed: int, note: bytes) -> None:
        """Makes all rows up to this number count."""
        self._record.write(committed, len(note), note)
        self.committed, self.note = committed, note

    def mark_synced(self, number: int) -> None:
        """Remembers that every row up to this number has reached the disk."""
        self.synced = number
        self._memory[_SYNCED_AT : _SYNCED_AT + 8] = number.to_bytes(8, "little")
        self._memory.flush()

    def take_over(self, capacity: int) -> None:
        """Makes the file belong to this boot of the machine."""
        self.capacity = capacity
        self.commit(self.committed, self.note)
        fixed = _FIXED.pack(_MAGIC, self.store_id, boot_id(), capacity, min(self.synced, self.committed))
        self._memory[: len(fixed)] = fixed
        self._memory.flush()


def open_state(path: Path, *, is_writable: bool) -> StoreState:
    """Maps the state file; raises OSError or ValueError if there is none that can be used."""
    with path.open("r+b" if is_writable else "rb") as file:
        access = mmap.ACCESS_WRITE if is_writable else mmap.ACCESS_READ
        return StoreState(mmap.mmap(file.fileno(), mmap.PAGESIZE, access=access))


def create_state(path: Path, store_id: bytes, committed: int = 0) -> StoreState:
    """Writes the state of a store whose rows up to `committed` count, in place of whatever was there."""
    replace_file(path, _FIXED.pack(_MAGIC, store_id, boot_id(), 0, 0).ljust(mmap.PAGESIZE, b"\0"))
    state = open_state(path, is_writable=True)
    state.commit(committed, b"")
    return state


def boot_id() -> bytes:
    """Names the time since the machine was started: memory and mapped files survive anything but its end."""
    return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
