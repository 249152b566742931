"""Reads the JSON lines that a run has written, also while it is writing them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Series(NamedTuple):
    """One metric over the steps of a run, in the order in which it was written."""

    step: np.ndarray
    value: np.ndarray


def read_series(path: str | Path) -> dict[str, Series]:
    """Every number in the file by its key; empty if there is no file yet."""
    points: dict[str, list[tuple[int, float]]] = {}
    for line in read_lines(Path(path)):
        for key, value in line.items():
            if key not in ("step", "time") and not isinstance(value, str):
                points.setdefault(key, []).append((line["step"], np.nan if value is None else value))
    return {key: make_series(values) for key, values in points.items()}


def make_series(points: list[tuple[int, float]]) -> Series:
    """A series from its points."""
    return Series(np.array([step for step, _ in points], np.int64), np.array([value for _, value in points], float))


def read_lines(path: Path) -> Iterator[dict]:
    """The lines that are whole; a run may be writing the last one, and a kill may have torn one."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                values = json.loads(line)
            except ValueError:
                continue
            yield values
