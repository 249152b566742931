"""Trees of arrays, numbers, strings and bytes as a list of buffers, and back; used on the wire and in checkpoint files.

The first buffer is a msgpack header that holds the tree, with a reference in place of every array. The second packs all
arrays of up to `LARGE` bytes at offsets of `ALIGN`. Each larger array (or bytes object) is a buffer of its own.
"""

import functools
import importlib
import math
import struct
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np

from dreamfleet.errors import BadRequest

MAX_BYTES = 1 << 30
LARGE = 1 << 16
ALIGN = 64

Buffer = Any  # bytes, or anything else of one byte per element that offers its memory

_PLAIN = frozenset((bool, int, float, str, type(None)))
_BASES: tuple[Any, ...] = (dict, list, tuple, str, bytes, int, float)
_STRINGS = frozenset((str,))
_NATIVE = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_dtype_of_name = {name.encode(): np.dtype(name) for name in _NATIVE}
_name_of_dtype = {dtype: name for name, dtype in _dtype_of_name.items()}
_name_of_scalar = {dtype.type: name for name, dtype in _dtype_of_name.items()}
_PADDING = [bytes(count) for count in range(ALIGN)]

# Reference to an array: buffer (0 is the packed one, n the n-th large one), offset, dimensions; then shape, dtype name.
_REFERENCE = struct.Struct("<IQB")
_SHAPES = [struct.Struct(f"<{ndim}Q") for ndim in range(65)]
_ARRAY, _BYTES = 1, 2  # msgpack extension types


def encode(tree: Any) -> list[Buffer]:
    """Buffers for `tree`; large arrays are not copied, so they must not change for as long as the buffers are used."""
    try:
        return _Encoder().encode(tree)
    except RecursionError:
        raise TypeError("cannot send the data: it is nested too deeply or contains itself") from None
    except (TypeError, ValueError, OverflowError):
        path, reason = _locate(tree)
        raise TypeError(f"cannot send {path or 'the data'}: {reason}") from None


def decode(frames: Sequence[Buffer], max_bytes: int = MAX_BYTES) -> Any:
    """The tree that was encoded, its arrays writable copies; raises `BadRequest` for anything else than such a tree."""
    total = sum(map(len, frames))
    if total > max_bytes:
        raise BadRequest(f"message of {total} bytes is above the limit of {max_bytes}")
    try:
        return msgpack.unpackb(frames[0], ext_hook=_Decoder(frames).resolve, strict_map_key=True)
    except BadRequest:
        raise
    except Exception as error:
        raise BadRequest(f"malformed message ({type(error).__name__}: {error})") from None


class _Encoder:
    __slots__ = ("large", "packed", "packed_size")

    def __init__(self):
        self.packed: list[Buffer] = []
        self.packed_size = 0
        self.large: list[Buffer] = []

    def encode(self, tree: Any) -> list[Buffer]:
        header = msgpack.packb(self.convert(tree))
        if not self.packed and not self.large:
            return [header]
        return [header, b"".join(self.packed), *self.large]

    def convert(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is np.ndarray:
            return self.convert_array(value)
        if kind in _name_of_scalar:
            return self.pack(value, value.itemsize, 0, _name_of_scalar[kind])
        if kind is dict:
            if not _STRINGS.issuperset(map(type, value)):
                value = _with_plain_keys(value)
            convert = self.convert
            return {key: convert(child) for key, child in value.items()}
        if kind is list or kind is tuple:
            return list(map(self.convert, value))
        if kind is bytes:
            return value if len(value) <= LARGE else self.convert_bytes(value)
        return self.convert(_simplify(value))

    def convert_array(self, array: np.ndarray) -> msgpack.ExtType:
        name = _name_of_dtype.get(array.dtype)
        if name is None:
            array, name = _with_named_dtype(array)
        if not array.flags.c_contiguous:
            array = array.copy("C")
        size, ndim = array.nbytes, array.ndim
        description = _SHAPES[ndim].pack(*array.shape) + name
        if name not in _dtype_of_name or size > LARGE:
            array = array.reshape(-1).view(np.uint8)
        if size <= LARGE:
            return self.pack(array, size, ndim, description)
        self.large.append(array)
        return msgpack.ExtType(_ARRAY, _REFERENCE.pack(len(self.large), 0, ndim) + description)

    def pack(self, memory: Buffer, size: int, ndim: int, description: bytes) -> msgpack.ExtType:
        offset = self.packed_size
        padding = -size % ALIGN
        self.packed += (memory, _PADDING[padding])
        self.packed_size = offset + size + padding
        return msgpack.ExtType(_ARRAY, _REFERENCE.pack(0, offset, ndim) + description)

    def convert_bytes(self, value: bytes) -> msgpack.ExtType:
        self.large.append(value)
        return msgpack.ExtType(_BYTES, _REFERENCE.pack(len(self.large), 0, 0))


class _Decoder:
    __slots__ = ("frames", "packed")

    def __init__(self, frames: Sequence[Buffer]):
        self.frames: list[Buffer | None] = list(frames)
        self.packed: np.ndarray | None = None

    def resolve(self, kind: int, reference: bytes) -> Any:
        position, offset, ndim = _REFERENCE.unpack_from(reference)
        if kind == _BYTES:
            return bytes(self.take(position))
        if kind != _ARRAY:
            raise BadRequest(f"unknown kind of value ({kind})")
        shape = _SHAPES[ndim].unpack_from(reference, _REFERENCE.size)
        name = reference[_REFERENCE.size + 8 * ndim :]
        dtype = _dtype_of_name.get(name) or _find_dtype(name)
        if position:
            return self.large_array(position, shape, dtype)
        if self.packed is None:
            self.packed = np.frombuffer(self.take(0), np.uint8).copy()
        return np.ndarray(shape, dtype, self.packed, offset)

    def large_array(self, position: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        source = np.frombuffer(self.take(position), np.uint8)
        if math.prod(shape) * dtype.itemsize != source.size:
            raise BadRequest(f"array of shape {shape} and {dtype} does not fit its {source.size} bytes")
        memory = np.empty(source.size + ALIGN, np.uint8)
        start = -memory.__array_interface__["data"][0] % ALIGN
        aligned = memory[start : start + source.size]
        aligned[:] = source
        return aligned.view(dtype).reshape(shape)

    def take(self, position: int) -> Buffer:
        # Every buffer may be asked for once, so that a small header cannot claim more memory than was sent.
        frame, self.frames[position + 1] = self.frames[position + 1], None
        if frame is None:
            raise BadRequest(f"buffer {position} is used twice")
        return frame


def _with_plain_keys(mapping: dict) -> dict[str, Any]:
    for key in mapping:
        if not isinstance(key, str):
            raise TypeError(f"key {key!r} is not a string")
    return {str(key): value for key, value in mapping.items()}


def _simplify(value: Any) -> Any:
    """The same value as one of the few types that travel, for subclasses of these."""
    for kind in _BASES:
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    raise TypeError(f"{type(value).__name__} is not an array, number, string, bytes, None, or a dict or list of these")


def _with_named_dtype(array: np.ndarray) -> tuple[np.ndarray, bytes]:
    native = array.dtype.newbyteorder("=")
    if native in _name_of_dtype:
        return array.astype(native), _name_of_dtype[native]
    if array.dtype.type.__module__.startswith("ml_dtypes"):
        return array, array.dtype.name.encode()
    raise TypeError(f"arrays of dtype {array.dtype} are not supported")


@functools.cache
def _find_dtype(name: bytes) -> np.dtype:
    """Types such as bfloat16, which only exist where the `ml_dtypes` package is installed."""
    try:
        dtype = np.dtype(getattr(importlib.import_module("ml_dtypes"), name.decode()))
    except (ImportError, AttributeError, TypeError, ValueError):
        raise BadRequest(f"unknown dtype {name[:32]!r}") from None
    if dtype.hasobject:
        raise BadRequest(f"unknown dtype {name[:32]!r}")
    return dtype


def _locate(value: Any, path: str = "") -> tuple[str, str]:
    """Key path of the first leaf that cannot be encoded, and why."""
    if isinstance(value, dict):
        children = [(f"{path}.{key}" if path else str(key), child) for key, child in value.items()]
    elif isinstance(value, (list, tuple)):
        children = [(f"{path}[{index}]", child) for index, child in enumerate(value)]
    else:
        children = []
    for child_path, child in children:
        try:
            _Encoder().encode(child)
        except (TypeError, ValueError, OverflowError):
            return _locate(child, child_path)
    try:
        _Encoder().encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        return path, str(error)
    return path, "it is nested too deeply"
