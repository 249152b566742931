"""What the replay role has counted, kept so that it survives the role's process."""

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from dreamfleet.base.filesystems import reserve
from dreamfleet.base.records import TwoSlotRecord
from dreamfleet.roles.protocol import MARK_BYTES, BatchMark

_SLOT_BYTES = 128
_FIELDS = f"QQ{MARK_BYTES}sQ"  # inserts, samples, actor, sequence
_NOTE = struct.Struct(f"<Q{MARK_BYTES}sQ")  # inserts, actor, sequence


@dataclass
class Counts:
    """What the replay role has committed: rows, sampled sequences, and the last batch of the actor."""

    inserts: int = 0
    samples: int = 0
    actor: str = ""
    sequence: int = 0


def make_note(inserts: int, mark: BatchMark) -> bytes:
    """What a store commits together with the rows of a batch."""
    return _NOTE.pack(inserts, mark.actor.encode()[:MARK_BYTES], mark.sequence)


def read_note(note: bytes) -> tuple[int, BatchMark]:
    """The inserts and the mark of the last batch that a store committed."""
    if len(note) != _NOTE.size:
        return 0, BatchMark()
    inserts, actor, sequence = _NOTE.unpack(note)
    return inserts, BatchMark(actor.rstrip(b"\0").decode(), sequence)


class CountsFile:
    """The counts in a mapped file, so that they survive the process; a kill during a write leaves those before."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            reserve(fd, 2 * _SLOT_BYTES)
            self._map = mmap.mmap(fd, 2 * _SLOT_BYTES)
        finally:
            os.close(fd)
        self._record = TwoSlotRecord(self._map, (0, _SLOT_BYTES), _FIELDS)

    def read(self) -> Counts:
        """The newest counts that were written whole, or zeros."""
        inserts, samples, actor, sequence = self._record.read() or (0, 0, b"", 0)
        return Counts(inserts, samples, actor.rstrip(b"\0").decode(), sequence)

    def write(self, counts: Counts) -> None:
        self._record.write(counts.inserts, counts.samples, counts.actor.encode()[:MARK_BYTES], counts.sequence)

    def close(self) -> None:
        self._map.close()
