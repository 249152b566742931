"""Reads the JSON lines that a run has written, also while it is writing them: only what is new, as columns.

`Table` is what everyone reads runs with: `dreamfleet plot`, the dashboard, and `run.metrics()` in Python.
"""

import itertools
import json
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

CHUNK_BYTES = 4 << 20
FIRST_BYTES = 64 << 10  # of a file: its names are known at once, however long it is
MARK = 64  # bytes before the position that must still be there for the file to be the same one
NUMBERS = frozenset((int, float, bool, type(None)))  # None: a value that was not finite


class Series(NamedTuple):
    """One metric over the steps of a run, in the order in which it was written."""

    step: np.ndarray
    value: np.ndarray


class Points(NamedTuple):
    """Some points of one metric: the number of the line, its step and time, and the value (NaN: not finite)."""

    row: np.ndarray
    step: np.ndarray
    time: np.ndarray
    value: np.ndarray


def read_series(path: str | Path) -> dict[str, Series]:
    """Every number in the file by its key; empty if there is no file yet."""
    table = read_table(path)
    points = {key: table.points(key) for key in table.names()}
    return {key: Series(some.step, some.value) for key, some in points.items()}


def make_series(points: list[tuple[int, float]]) -> Series:
    """A series from its points."""
    return Series(np.array([step for step, _ in points], np.int64), np.array([value for _, value in points], float))


def read_table(path: str | Path) -> "Table":
    """All that is in the file now."""
    table = Table(Path(path))
    table.refresh()
    return table


def open_regular(path: Path) -> int:
    """A descriptor of a file, to read; raises OSError for what is none, such as a pipe, which would block."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(f"{path} is not a regular file")
    return fd


class Table:
    """The lines of a file as columns that grow; not locked, and `refresh` has one caller at a time.

    `generation` counts how often the file turned out to be another one, and all was read again.
    """

    def __init__(self, path: Path, open_file: Callable[[Path], int] = open_regular, chunk_bytes: int = CHUNK_BYTES):
        self.generation = 0
        self.is_complete = False  # all that was there at the last refresh has been read
        self._lines = _NewLines(path, open_file, chunk_bytes)
        self._clear()

    def refresh(self, budget_s: float = np.inf) -> bool:
        """Reads what is new, for about so long; returns whether anything changed."""
        deadline, before = time.monotonic() + budget_s, (self.generation, self.rows)
        self.is_complete = False
        for lines, is_restart in self._lines.read():
            if is_restart:
                self.generation += 1
                self._clear()
            self._add(lines)
            if time.monotonic() >= deadline and not self._lines.is_at_end:
                break
        else:
            self.is_complete = True
        return (self.generation, self.rows) != before

    @property
    def rows(self) -> int:
        return len(self._step)

    def names(self) -> list[str]:
        """The metrics seen so far, in the order of their first appearance."""
        return list(self._values)

    def stamps(self, since: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Step and time of the lines from number `since` on."""
        return self._step.view()[since:], self._time.view()[since:]

    def points(self, key: str, since: int = 0) -> Points:
        """The points of a metric from line number `since` on; empty for one that was never logged."""
        if key not in self._values:
            nothing = np.zeros(0, np.int64)
            return Points(nothing, nothing, nothing.astype(float), nothing.astype(float))
        rows, values = self._rows[key].view(), self._values[key].view()
        start = int(np.searchsorted(rows, since)) if since else 0
        rows = rows[start:]
        return Points(rows, self._step.view()[rows], self._time.view()[rows], values[start:])

    def last(self, key: str) -> float | None:
        """The latest value of a metric, if there is a finite one."""
        if key not in self._values:
            return None
        value = float(self._values[key].view()[-1])
        return value if math.isfinite(value) else None

    def _clear(self) -> None:
        self.size = 0  # how many values are held
        self._step, self._time = _Column(np.int64), _Column(np.float64)
        self._rows: dict[str, _Column] = {}
        self._values: dict[str, _Column] = {}

    def _add(self, lines: list[bytes]) -> None:
        """Neighbours with the same keys are converted together: a log of hundreds of metrics is mostly such lines."""
        keys: tuple[str, ...] = ()
        block: list[list] = []
        for row in _parse(lines):
            if tuple(row) != keys:
                self._add_block(keys, block)
                keys, block = tuple(row), []
            block.append(list(row.values()))
        self._add_block(keys, block)

    def _add_block(self, keys: tuple[str, ...], block: list[list]) -> None:
        if not block:
            return
        first = self.rows
        numbers = np.arange(first, first + len(block))
        if len(block) > 1 and (matrix := _to_matrix(block)) is not None:
            self._add_matrix(keys, numbers, matrix, [row[keys.index("step")] for row in block])
            return
        columns = dict(zip(keys, zip(*block, strict=True), strict=True))
        self._step.extend(np.array(columns.pop("step"), np.int64))
        self._time.extend(_to_floats(columns.pop("time", (0.0,) * len(block))))
        for key, column in columns.items():
            rows = numbers
            if not NUMBERS.issuperset(map(type, column)):  # texts among them
                is_number = [type(value) in NUMBERS for value in column]
                rows, column = numbers[is_number], list(itertools.compress(column, is_number))
            if not column:
                continue
            self._open_column(key, len(column))
            if len(block) == 1 and type(column[0]) is float:  # a line that was just written: many of them, one by one
                self._rows[key].append(first)
                self._values[key].append(column[0])
            else:
                self._rows[key].extend(rows)
                self._values[key].extend(_to_floats(column))

    def _add_matrix(self, keys: tuple[str, ...], numbers: np.ndarray, matrix: np.ndarray, steps: list[int]) -> None:
        """Lines in which all values are numbers, which is most of a long file."""
        self._step.extend(np.array(steps, np.int64))
        self._time.extend(matrix[:, keys.index("time")] if "time" in keys else np.zeros(len(numbers)))
        for key, column in zip(keys, matrix.T, strict=True):
            if key not in ("step", "time"):
                self._open_column(key, len(column))
                self._rows[key].extend(numbers)
                self._values[key].extend(column)

    def _open_column(self, key: str, more: int) -> None:
        self.size += more
        if key not in self._values:
            self._rows[key], self._values[key] = _Column(np.int32), _Column(np.float64)


class _Column:
    """An array that grows at its end."""

    def __init__(self, dtype: type):
        self._array = np.empty(16, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def view(self) -> np.ndarray:
        return self._array[: self._length]

    def append(self, value: float) -> None:
        if self._length == len(self._array):
            self._grow(self._length + 1)
        self._array[self._length] = value
        self._length += 1

    def extend(self, values: np.ndarray) -> None:
        end = self._length + len(values)
        if end > len(self._array):
            self._grow(end)
        self._array[self._length : end] = values
        self._length = end

    def _grow(self, least: int) -> None:
        # A new array: whoever has a view of the old one keeps what it saw.
        grown = np.empty(max(least, 2 * len(self._array)), self._array.dtype)
        grown[: self._length] = self.view()
        self._array = grown


class _NewLines:
    """The whole lines that a file has got since the last time; a line without its end waits."""

    def __init__(self, path: Path, open_file: Callable[[Path], int], chunk_bytes: int):
        self._path = path
        self._chunk_bytes = chunk_bytes
        self._open = open_file
        self._file = (0, 0)  # device and inode
        self._seen = (-1, -1)  # size and time of change when all had been read
        self._position = 0
        self._mark = b""  # the bytes before the position
        self.is_at_end = False  # no more chunk comes from this reading

    def read(self) -> Iterator[tuple[list[bytes], bool]]:
        """Chunks of lines; the flag says that the file is another one than before, or was cut."""
        self.is_at_end = False
        try:
            info = self._path.stat()
            if self._seen == (info.st_size, info.st_mtime_ns) and self._file == (info.st_dev, info.st_ino):
                return
            fd = self._open(self._path)
        except OSError:
            return  # not there yet, or not any more: what was read stays
        try:
            info = os.fstat(fd)
            is_restart = self._restart_if_other(fd, info)
            if is_restart:
                yield [], True
            # What is appended meanwhile is of the next time: a quick writer does not keep its reader here.
            while not self.is_at_end and (chunk := os.pread(fd, self._next_bytes(), self._position)):
                whole = chunk[: chunk.rfind(b"\n") + 1] or self._read_long_line(fd, chunk)
                if not whole:
                    break
                self.is_at_end = self._position + max(len(chunk), len(whole)) >= info.st_size
                self._position += len(whole)
                self._mark = whole[-MARK:]
                yield whole.splitlines(), False
            self._seen = info.st_size, info.st_mtime_ns
        finally:
            os.close(fd)

    def _restart_if_other(self, fd: int, info: os.stat_result) -> bool:
        file, is_first = (info.st_dev, info.st_ino), self._file == (0, 0)
        is_same = file == self._file and info.st_size >= self._position
        if is_same:
            is_same = os.pread(fd, len(self._mark), self._position - len(self._mark)) == self._mark
        self._file = file
        if is_same or is_first:
            return False
        self._position, self._mark = 0, b""
        return True

    def _next_bytes(self) -> int:
        """As much again as was read before: little at first."""
        return min(self._chunk_bytes, max(FIRST_BYTES, self._position))

    def _read_long_line(self, fd: int, chunk: bytes) -> bytes:
        """The line that begins here, if it ends; there is more than a chunk of it."""
        parts, size = [chunk], len(chunk)
        while parts[-1] and b"\n" not in parts[-1]:
            parts.append(os.pread(fd, self._chunk_bytes, self._position + size))
            size += len(parts[-1])
        line = b"".join(parts)
        return line[: line.rfind(b"\n") + 1]


def _parse(lines: list[bytes]) -> Iterator[dict]:
    """The values of each line; without those that a kill has torn, or that are of something else."""
    rows = _parse_json(b"[" + b",".join(lines) + b"]")  # at once: keys that repeat are made once
    if not isinstance(rows, list) or len(rows) != len(lines):
        rows = map(_parse_json, lines)
    for row in rows:
        if not isinstance(row, dict) or type(row.get("step")) is not int or abs(row["step"]) >= 1 << 62:
            continue
        if type(row.get("time", 0.0)) in (int, float):
            yield row


def _parse_json(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _to_matrix(block: list[list]) -> np.ndarray | None:
    """Lines as one array, if all of their values are numbers."""
    if not NUMBERS.issuperset(map(type, block[0])):  # or texts would make it one of texts
        return None
    try:
        matrix = np.array(block)
    except (ValueError, TypeError, OverflowError):
        return None
    return matrix if matrix.dtype == np.float64 else None


def _to_floats(values: Sequence[float | None]) -> np.ndarray:
    try:
        return np.array(values, float)
    except OverflowError:  # an integer beyond the range of floats
        return np.array([math.nan if value is None or abs(value) > sys.float_info.max else value for value in values])
