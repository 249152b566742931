"""One segment: a file of row blocks, its layout, and the mapping that rows are written to and read from.

Layout: magic, id, header length and checksum, header (JSON); then, each at a page, the owners of the blocks, the number
and the priority of every row, and the columns. A row's number says when it was added (1 is the first row of the store,
0 an unused place): it is written after the row's columns.

Rows are updated while others read them, also from other processes, without a lock: a sequence lock for each block. The
writer counts `begun` up before it changes rows of the block and `ended` after it; a copy is whole if `begun` after it
is what `ended` was before it. That relies on stores, and loads, being seen in order, as they are on x86-64.
"""

import contextlib
import ctypes
import errno
import functools
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.replay.schema import Schema

SUFFIX = ".segment"  # of the files that segments are in
PAGE = mmap.PAGESIZE
# Whose block it is (trajectory: number of its first row), and how often its rows were changed; both of these are 0 in
# segments of earlier versions, where the index took their place too.
OWNER = np.dtype([("worker", "<i8"), ("trajectory", "<u8"), ("index", "<u4"), ("begun", "<u2"), ("ended", "<u2")])

_MAGIC = b"DFSEGMT\x01"
_PREFIX = struct.Struct("<8s16sII")  # magic, id, length and CRC-32 of the header
_MADV_POPULATE_WRITE = 23
_POPULATE_BYTES = 8 << 20


@dataclass(frozen=True)
class Layout:
    """Where everything is in a segment of `rows` rows."""

    TABLE_BYTES: ClassVar[int] = 12  # of a row, besides its columns

    schema: Schema
    rows: int

    @functools.cached_property
    def header(self) -> bytes:
        return json.dumps({"rows": self.rows, "block": BLOCK_ROWS, "columns": self.schema.to_json()}).encode()

    @functools.cached_property
    def offsets(self) -> dict[str, int]:
        """Offsets of the tables `/owners`, `/numbers`, `/priorities` and of the columns, and of the `/end`."""
        sizes = {
            "/header": _PREFIX.size + len(self.header),
            "/owners": self.rows // BLOCK_ROWS * OWNER.itemsize,
            "/numbers": self.rows * 8,
            "/priorities": self.rows * 4,
            **{name: self.rows * column.row_bytes for name, column in self.schema.columns.items()},
        }
        offsets, position = {}, 0
        for name, size in sizes.items():
            offsets[name] = position
            position += -(-size // PAGE) * PAGE
        return {**offsets, "/end": position}

    @property
    def size(self) -> int:
        return self.offsets["/end"]

    @property
    def blocks(self) -> int:
        return self.rows // BLOCK_ROWS


class Segment:
    """A mapped segment; `serial` numbers the segments of a store in the order in which they were made."""

    def __init__(self, layout: Layout, memory: mmap.mmap, path: str):
        self.layout = layout
        self.path = path  # by which another process on this machine can open it
        self._memory = memory
        offsets = layout.offsets
        self.owners = np.ndarray(layout.blocks, OWNER, memory, offsets["/owners"])
        self._begun, self._ended = self.owners["begun"], self.owners["ended"]
        self.numbers = np.ndarray(layout.rows, "<u8", memory, offsets["/numbers"])
        self.priorities = np.ndarray(layout.rows, "<f4", memory, offsets["/priorities"])
        self.columns = {
            name: np.ndarray((layout.rows, *column.shape), column.dtype, memory, offsets[name])
            for name, column in layout.schema.columns.items()
        }
        self.serial = int.from_bytes(self.id[8:], "big")

    @property
    def id(self) -> bytes:
        """The 16 bytes that step ids of this segment begin with."""
        return self._memory[8:24]

    def own(self, block: int, worker: int, trajectory: int, index: int) -> None:
        """Gives a block to a trajectory; its counts of changes go on, as a reader may still look at what it was."""
        owner = self.owners[block]
        owner["worker"], owner["trajectory"], owner["index"] = worker, trajectory, index

    @contextlib.contextmanager
    def changing(self, rows: np.ndarray) -> Iterator[None]:
        """Around changes of rows that others may read: they will know. One writer at a time."""
        blocks = rows // BLOCK_ROWS
        count = self._begun[blocks] + np.uint16(1)  # the same for every row of a block
        self._begun[blocks] = count
        try:
            yield
        finally:
            self._ended[blocks] = count

    def changes(self, row: int, stop: int) -> bytes:
        """The changes that the blocks of these rows have had, to be taken before the rows are copied."""
        return self._ended[row // BLOCK_ROWS : (stop - 1) // BLOCK_ROWS + 1].tobytes()

    def is_whole(self, row: int, stop: int, changes: bytes) -> bool:
        """Whether rows that were copied since `changes` was taken are as they were at one time."""
        return self._begun[row // BLOCK_ROWS : (stop - 1) // BLOCK_ROWS + 1].tobytes() == changes

    def settle(self) -> None:
        """Ends the changes that a writer which was killed had begun."""
        self._ended[:] = self._begun

    def begin(self, segment_id: bytes) -> None:
        """Takes an identity, before any row is written, and forgets whatever rows were there."""
        header = self.layout.header
        # First of all: who gathers rows of a segment that is used again looks at its id afterwards.
        self._memory[8:24] = segment_id
        self.numbers[:] = 0
        self.priorities[:] = 0
        prefix = _PREFIX.pack(_MAGIC, segment_id, len(header), zlib.crc32(header))
        self._memory[: len(prefix) + len(header)] = prefix + header
        self.serial = int.from_bytes(segment_id[8:], "big")

    def populate(self) -> None:
        """Makes every page writable without a fault later; a full disk is an error here, not a signal."""
        address = np.frombuffer(self._memory, np.uint8).ctypes.data
        for start in range(0, self.layout.size, _POPULATE_BYTES):
            size = min(_POPULATE_BYTES, self.layout.size - start)
            if _libc().madvise(ctypes.c_void_p(address + start), ctypes.c_size_t(size), _MADV_POPULATE_WRITE):
                code = ctypes.get_errno()
                if code == errno.EINVAL:  # a kernel before 5.14: pages are made when they are first written
                    return
                raise OSError(code, os.strerror(code))


def open_segment(path: str, segment_id: bytes | None = None, *, is_writable: bool = False) -> Segment:
    """Maps a segment; raises OSError or ValueError if it is not there, not whole, or not the one of that id."""
    fd = os.open(path, os.O_RDWR if is_writable else os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if size < PAGE:
            raise ValueError(f"it has only {size} bytes")
        memory = mmap.mmap(fd, size, access=mmap.ACCESS_WRITE if is_writable else mmap.ACCESS_READ)
    finally:
        os.close(fd)  # the mapping has its own
    magic, actual_id, length, crc = _PREFIX.unpack(memory[: _PREFIX.size])
    header = memory[_PREFIX.size : _PREFIX.size + length]
    if magic != _MAGIC or zlib.crc32(header) != crc:
        raise ValueError("its header is damaged")
    if segment_id not in (None, actual_id):
        raise ValueError("it holds another segment")
    fields = json.loads(header)
    if fields["block"] != BLOCK_ROWS:
        raise ValueError(f"its blocks have {fields['block']} rows, not {BLOCK_ROWS}")
    layout = Layout(Schema.from_json(fields["columns"]), fields["rows"])
    if size != layout.size:
        raise ValueError(f"it has {size} bytes instead of {layout.size}")
    return Segment(layout, memory, path)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
