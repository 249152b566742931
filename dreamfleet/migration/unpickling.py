"""Pickled files of others, read without running what is in them: arrays of numbers and plain containers."""

import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from dreamfleet.errors import CheckpointError

PLAIN = re.compile("[biufc][0-9]+")  # types of numbers; anything else could hold pointers


def load_pickle(path: Path) -> Any:
    """What a file holds, with arrays as objects that `numpy.asarray` takes; raises CheckpointError for all else."""
    try:
        return _Unpickler(io.BytesIO(path.read_bytes())).load()
    except CheckpointError as error:
        raise CheckpointError(f"{path} is refused: {error}") from None
    except Exception as error:  # whatever a broken pickle raises
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}: {error})") from None


class _Dtype:
    """In the place of numpy.dtype, whose state can be made to lie about the memory it describes."""

    def __init__(self, name: str, *_: Any):
        if type(name) is not str or not PLAIN.fullmatch(name):
            raise CheckpointError(f"it has {name!r} for numbers, and only arrays and plain containers are read")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """In the place of numpy.ndarray, which gets its contents after it was made."""

    def __init__(self, *_: Any):
        self._value: np.ndarray | None = None

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, is_fortran, data = state
        self._value = _from_buffer(data, dtype, shape, "F" if is_fortran else "C")

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if self._value is None:
            raise CheckpointError("it has an array without contents")
        return self._value.astype(dtype or self._value.dtype)


def _from_buffer(data: bytes, dtype: _Dtype, shape: tuple[int, ...], order: Any) -> np.ndarray:
    return np.frombuffer(data, dtype.dtype).reshape(shape, order=order)


def _scalar(dtype: _Dtype, data: bytes) -> np.generic:
    return np.frombuffer(data, dtype.dtype)[0]


# What stands for the functions that arrays are pickled with; nothing else is ever called.
_STAND_INS = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    **{
        (f"numpy.{core}.{module}", name): stand_in
        for core in ("core", "_core")
        for module, name, stand_in in (
            ("multiarray", "_reconstruct", _Array),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise CheckpointError(f"it asks for {module}.{name}, and only arrays and plain containers are read")
        return _STAND_INS[module, name]
