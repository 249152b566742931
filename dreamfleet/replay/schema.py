"""The columns of a row: names, data types and shapes. Taken from the first row, kept in every segment's header."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dreamfleet.base.dtypes import find_dtype
from dreamfleet.errors import ReplayError
from dreamfleet.replay.contract import Batch


@dataclass(frozen=True)
class Column:
    """One array of every row."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}{self.shape}"


class Schema:
    """What every row of a store looks like."""

    def __init__(self, columns: Iterable[Column]):
        self.columns = {column.name: column for column in sorted(columns, key=lambda column: column.name)}
        self.row_bytes = sum(column.row_bytes for column in self.columns.values())
        self._expected: dict[int, dict] = {}  # of a batch with this number of rows: data types and shapes

    @classmethod
    def of_batch(cls, batch: Batch) -> "Schema":
        """The schema of a batch of rows, which must have what a sequence is made of."""
        for name in ("is_first", "is_last"):
            if name not in batch or batch[name].dtype != bool or batch[name].ndim != 1:
                raise ReplayError(f"the row has no '{name}' of type bool; it has {sorted(batch)}")
        if "stepid" in batch:
            raise ReplayError("the row has a 'stepid', which only the replay assigns; remove it")
        return cls(Column(name, value.dtype, value.shape[1:]) for name, value in batch.items())

    @classmethod
    def from_json(cls, columns: list) -> "Schema":
        return cls(Column(name, find_dtype(dtype), tuple(shape)) for name, dtype, shape in columns)

    def to_json(self) -> list:
        return [[column.name, column.dtype.name, list(column.shape)] for column in self.columns.values()]

    def check(self, batch: Batch, num_rows: int) -> None:
        """Raises ReplayError unless the batch has these columns with `num_rows` rows each."""
        if num_rows not in self._expected:
            self._expected = {
                num_rows: {name: (column.dtype, (num_rows, *column.shape)) for name, column in self.columns.items()}
            }
        expected = self._expected[num_rows]
        if len(batch) != len(expected):
            self._refuse(batch, num_rows)
        for name, value in batch.items():
            if expected.get(name) != (value.dtype, value.shape):
                self._refuse(batch, num_rows)

    def difference(self, other: "Schema") -> str:
        """What is different about another schema, in words; empty if nothing is."""
        missing, extra = self.columns.keys() - other.columns.keys(), other.columns.keys() - self.columns.keys()
        if missing or extra:
            return f"missing {sorted(missing)}, extra {sorted(extra)}"
        changed = [name for name, column in self.columns.items() if column != other.columns[name]]
        return ", ".join(f"'{name}' is {other.columns[name]}, not {self.columns[name]}" for name in changed)

    def _refuse(self, batch: Batch, num_rows: int) -> None:
        for name, value in batch.items():
            if value.shape[:1] != (num_rows,):
                raise ReplayError(f"'{name}' has shape {value.shape}, but there are {num_rows} workers")
        given = Schema(Column(name, value.dtype, value.shape[1:]) for name, value in batch.items())
        raise ReplayError(f"the row does not match the rows before: {self.difference(given)}")
