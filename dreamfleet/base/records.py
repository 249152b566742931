"""A record in mapped memory that survives a kill at any moment."""

import mmap
import struct
import zlib


class TwoSlotRecord:
    """Two slots written in turn, each with a version and a CRC-32: a kill during a write leaves the other one.

    `fields` is the format of the values as `struct` has it; `starts` are the places of the slots.
    """

    def __init__(self, memory: mmap.mmap, starts: tuple[int, int], fields: str):
        self._memory = memory
        self._starts = starts
        self._format = struct.Struct(f"<Q{fields}")
        self._version = 0
        self.read()  # a write continues the versions that are there

    def read(self) -> tuple | None:
        """The values that were last written as a whole, or None if there are none."""
        slots = [slot for start in self._starts if (slot := self._read_slot(start))]
        if not slots:
            return None
        self._version, *values = max(slots)
        return tuple(values)

    def write(self, *values: int | bytes) -> None:
        self._version += 1
        record = self._format.pack(self._version, *values)
        start = self._starts[self._version % 2]
        self._memory[start : start + len(record) + 4] = record + zlib.crc32(record).to_bytes(4, "little")

    def _read_slot(self, start: int) -> tuple | None:
        end = start + self._format.size
        record, checksum = self._memory[start:end], self._memory[end : end + 4]
        values = self._format.unpack(record)
        return values if values[0] and zlib.crc32(record).to_bytes(4, "little") == checksum else None
