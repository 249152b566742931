"""What the replay role has counted, kept so that it survives the role's process."""

import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from dreamfleet.roles.protocol import BatchMark

_SLOT_BYTES = 128
_FORMAT = struct.Struct("<QQQ32sQ")  # version, inserts, samples, actor, sequence; a crc32 follows
_NOTE = struct.Struct("<Q32sQ")  # inserts, actor, sequence


@dataclass
class Counts:
    """What the replay role has committed: rows, sampled sequences, and the last batch of the actor."""

    inserts: int = 0
    samples: int = 0
    actor: str = ""
    sequence: int = 0


def make_note(inserts: int, mark: BatchMark) -> bytes:
    """What a store commits together with the rows of a batch."""
    return _NOTE.pack(inserts, mark.actor.encode()[:32], mark.sequence)


def read_note(note: bytes) -> tuple[int, BatchMark]:
    """The inserts and the mark of the last batch that a store committed."""
    if len(note) != _NOTE.size:
        return 0, BatchMark()
    inserts, actor, sequence = _NOTE.unpack(note)
    return inserts, BatchMark(actor.rstrip(b"\0").decode(), sequence)


class CountsFile:
    """Two slots written in turn, each with a checksum: a kill in the middle of a write leaves the other one."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            # Not a hole: a write to one through the mapping would be fatal on a full disk.
            os.posix_fallocate(file.fileno(), 0, 2 * _SLOT_BYTES)
            self._map = mmap.mmap(file.fileno(), 2 * _SLOT_BYTES)
        self._version = 0
        self.read()  # a write continues the versions of the file

    def read(self) -> Counts:
        """The newest counts that were written whole, or zeros."""
        slots = [self._read_slot(i) for i in range(2)]
        valid = [slot for slot in slots if slot]
        if not valid:
            return Counts()
        self._version, inserts, samples, actor, sequence = max(valid)
        return Counts(inserts, samples, actor.rstrip(b"\0").decode(), sequence)

    def write(self, counts: Counts) -> None:
        self._version += 1
        payload = _FORMAT.pack(
            self._version, counts.inserts, counts.samples, counts.actor.encode()[:32], counts.sequence
        )
        start = (self._version % 2) * _SLOT_BYTES
        record = payload + struct.pack("<I", zlib.crc32(payload))
        self._map[start : start + len(record)] = record

    def close(self) -> None:
        self._map.close()

    def _read_slot(self, index: int) -> tuple | None:
        start = index * _SLOT_BYTES
        payload = self._map[start : start + _FORMAT.size]
        (checksum,) = struct.unpack_from("<I", self._map, start + _FORMAT.size)
        values = _FORMAT.unpack(payload)
        return values if values[0] and zlib.crc32(payload) == checksum else None
