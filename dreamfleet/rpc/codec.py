"""Trees of arrays, numbers, strings and bytes as a list of buffers, and back; used on the wire and in checkpoint files.

The first buffer has a msgpack header, which is the tree with a reference in place of every array, and then all arrays
of up to `LARGE` bytes, at offsets of `ALIGN`. Each larger array (or bytes object) is a buffer of its own.
"""

import functools
import math
import struct
from collections.abc import Sequence
from types import NoneType
from typing import Any, NamedTuple

import msgpack
import numpy as np

from dreamfleet.base.dtypes import find_extension_dtype
from dreamfleet.errors import BadRequest

MAX_BYTES = 1 << 30
LARGE = 1 << 16
ALIGN = 64

_SMALL_HEADER = 1 << 11  # bytes, up to which it is remembered

Buffer = Any  # bytes, or anything else of one byte per element that offers its memory

_PLAIN = frozenset((bool, int, float, str, type(None)))
_BASES: tuple[Any, ...] = (dict, list, tuple, str, bytes, int, float)
_ndarray = np.ndarray
_STRINGS = frozenset((str,))
_NATIVE = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_dtype_of_name = {name.encode(): np.dtype(name) for name in _NATIVE}
_name_of_dtype = {dtype: name for name, dtype in _dtype_of_name.items()}
_dtype_of_scalar = {dtype.type: dtype for dtype in _name_of_dtype}
_PADDING = [bytes(count) for count in range(ALIGN)]

_HEADER_SIZE = struct.Struct("<I")
# A reference says which buffer (0 is the first), the offset behind its header, and for arrays their shape and dtype.
_LOCATION = struct.Struct("<IQ")
_ARRAY, _BYTES = 1, 2  # msgpack extension types


def encode(tree: Any, prefix: bytes = b"") -> list[Buffer]:
    """Buffers for `tree`, the first one behind `prefix`; large arrays are not copied, and must not change meanwhile."""
    try:
        return _Encoder().encode(tree, prefix)
    except RecursionError:
        raise TypeError("cannot send the data: it is nested too deeply or contains itself") from None
    except (TypeError, ValueError, OverflowError):
        path, reason = _locate(tree)
        raise TypeError(f"cannot send {path or 'the data'}: {reason}") from None


def decode(frames: Sequence[Buffer], max_bytes: int = MAX_BYTES, start: int = 0) -> Any:
    """The tree, from buffers that have `start` bytes of prefix and that nobody else uses any more.

    Its arrays are writable: a buffer that `empty_aligned` made becomes the memory of its array, any other is copied.
    Raises `BadRequest`, and nothing else, for whatever `encode` did not make.
    """
    if (total := sum(map(len, frames))) > max_bytes:
        raise BadRequest(f"message of {total} bytes is above the limit of {max_bytes}")
    try:
        (header_size,) = _HEADER_SIZE.unpack_from(frames[0], start)
        start += _HEADER_SIZE.size
        end = start + header_size
        if end > len(frames[0]):
            raise BadRequest("message was cut off")
        header = bytes(memoryview(frames[0])[start:end])
        read = _read_header if header_size <= _SMALL_HEADER else _read_header.__wrapped__
        return read(header).restore(frames, end)
    except BadRequest:
        raise
    except Exception as error:
        raise BadRequest(f"malformed message ({type(error).__name__}: {error})") from None


def prepare(tree: Any, prefix: bytes = b"") -> tuple[list[Buffer], Any]:
    """Buffers as of `encode`, and the tree over their memory: what is written to its arrays is in the message."""
    contents = encode(tree, prefix)
    start = len(prefix) + _HEADER_SIZE.size
    end = start + _HEADER_SIZE.unpack_from(contents[0], len(prefix))[0]
    frames = [_copy_bytes(contents[0], end), *map(_copy_bytes, contents[1:])]
    layout = _read_header(contents[0][start:end])
    return frames, _Decoder(frames, frames[0][end:]).restore(layout.tree)


def copy_aligned(array: np.ndarray) -> np.ndarray:
    """A writable copy in memory of its own, at a multiple of `ALIGN` bytes if it is large."""
    if array.nbytes <= LARGE:
        return array.copy("C")
    copy = empty_aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def empty_aligned(size: int) -> np.ndarray:
    """Memory of so many bytes that begins at a multiple of `ALIGN`."""
    memory = np.empty(size + ALIGN, np.uint8)
    start = -_address(memory) % ALIGN
    return memory[start : start + size]


def _copy_bytes(content: Buffer, aligned: int = 0) -> np.ndarray:
    """A copy whose byte at `aligned` is at a multiple of `ALIGN`."""
    skipped = -aligned % ALIGN
    copy = empty_aligned(skipped + len(content))[skipped:]
    copy[:] = np.frombuffer(content, np.uint8)
    return copy


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


class _Encoder:
    __slots__ = ("large", "packed", "packed_size")

    def __init__(self):
        self.packed: list[Buffer] = []
        self.packed_size = 0
        self.large: list[Buffer] = []

    def encode(self, tree: Any, prefix: bytes = b"") -> list[Buffer]:
        header: bytes = msgpack.packb(self.convert(tree))  # pyright: ignore[reportAssignmentType]
        return [b"".join((prefix, _HEADER_SIZE.pack(len(header)), header, *self.packed)), *self.large]

    def convert(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is dict:
            if not _STRINGS.issuperset(map(type, value)):
                value = _with_plain_keys(value)
            convert = self.convert
            return {key: child if type(child) in _PLAIN else convert(child) for key, child in value.items()}
        if kind in _dtype_of_scalar:
            dtype = _dtype_of_scalar[kind]
            return self.pack(value, dtype.itemsize, (), dtype)
        if kind is np.ndarray:
            return self.convert_array(value)
        if kind is list or kind is tuple:
            return list(map(self.convert, value))
        if kind is bytes:
            return value if len(value) <= LARGE else self.add_large(value, _BYTES, b"")
        return self.convert(_simplify(value))

    def convert_array(self, array: np.ndarray) -> msgpack.ExtType:
        dtype, size = array.dtype, array.nbytes
        if dtype not in _name_of_dtype:
            array = _with_known_dtype(array)
            dtype = array.dtype
        memory = array if array.flags.c_contiguous else array.copy("C")
        if size > LARGE or dtype not in _name_of_dtype:  # the latter have no buffer interface
            memory = memory.reshape(-1).view(np.uint8)
        if size > LARGE:
            return self.add_large(memory, _ARRAY, _describe(array.shape, dtype))
        return self.pack(memory, size, array.shape, dtype)

    def pack(self, memory: Buffer, size: int, shape: tuple[int, ...], dtype: np.dtype) -> msgpack.ExtType:
        offset = self.packed_size
        padding = -size % ALIGN
        self.packed += (memory, _PADDING[padding])
        self.packed_size = offset + size + padding
        return _make_reference(offset, shape, dtype)

    def add_large(self, memory: Buffer, kind: int, description: bytes) -> msgpack.ExtType:
        self.large.append(memory)
        return msgpack.ExtType(kind, _LOCATION.pack(len(self.large), 0) + description)


class _Array(NamedTuple):
    """Stands for an array: the buffer it is in (0 is the first), and the offset behind its header."""

    position: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype


class _Bytes(NamedTuple):
    """Stands for a bytes object that is a buffer of its own."""

    position: int


class _Layout:
    """What a header says: the tree, with references in place of what is in the buffers.

    Nearly all messages are a pair: a dict of plain values or None, and a dict that may have small arrays too. As they
    come again and again with the same header, it is worked out only once how to restore them.
    """

    def __init__(self, tree: Any):
        self.tree = tree
        self._is_usual = _is_usual(tree)
        if self._is_usual:
            self._arrays = [(key, value) for key, value in tree[1].items() if type(value) is _Array]

    def restore(self, frames: Sequence[Buffer], start: int) -> Any:
        """The tree with the contents of buffers, the first of which has a header up to `start`."""
        if not self._is_usual:
            return _Decoder(frames, None, start).restore(self.tree)
        packed = bytearray(memoryview(frames[0])[start:])
        first, second = self.tree[0], self.tree[1].copy()
        for key, (_, offset, shape, dtype) in self._arrays:
            second[key] = _ndarray(shape, dtype, packed, offset)
        return [first if first is None else first.copy(), second]


def _is_usual(tree: Any) -> bool:
    if type(tree) is not list or len(tree) != 2 or type(tree[0]) not in (dict, NoneType) or type(tree[1]) is not dict:
        return False
    is_plain = all(type(value) in _PLAIN for value in (tree[0] or {}).values())
    return is_plain and all(
        type(value) in _PLAIN or (type(value) is _Array and value.position == 0) for value in tree[1].values()
    )


class _Decoder:
    __slots__ = ("frames", "packed", "start")

    def __init__(self, frames: Sequence[Buffer], packed: np.ndarray | None, start: int = 0):
        self.frames: list[Buffer | None] = list(frames)
        self.packed = packed  # the memory of small arrays, or none to make a copy of the first buffer from `start` on
        self.start = start

    def restore(self, value: Any) -> Any:
        kind = type(value)
        if kind is dict:
            return {key: self.restore(child) for key, child in value.items()}
        if kind is list:
            return list(map(self.restore, value))
        if kind is _Bytes:
            return bytes(self.take(value.position))
        if kind is not _Array:
            return value
        position, offset, shape, dtype = value
        if position:
            return self.large_array(position, shape, dtype)
        if self.packed is None:
            self.packed = np.frombuffer(self.take(0), np.uint8)[self.start :].copy()
        return _ndarray(shape, dtype, self.packed, offset)

    def large_array(self, position: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        source = np.frombuffer(self.take(position), np.uint8)
        if math.prod(shape) * dtype.itemsize != source.size:
            raise BadRequest(f"array of shape {shape} and {dtype} does not fit its {source.size} bytes")
        is_usable = source.flags.writeable and not _address(source) % ALIGN
        return (source if is_usable else copy_aligned(source)).view(dtype).reshape(shape)

    def take(self, position: int) -> Buffer:
        # Every buffer may be asked for once, so that a small header cannot claim more memory than was sent.
        frame, self.frames[position] = self.frames[position], None
        if frame is None:
            raise BadRequest(f"buffer {position} is used twice")
        return frame


# A process sends and receives the same few layouts all the time.
@functools.lru_cache(4096)
def _make_reference(offset: int, shape: tuple[int, ...], dtype: np.dtype) -> msgpack.ExtType:
    return msgpack.ExtType(_ARRAY, _LOCATION.pack(0, offset) + _describe(shape, dtype))


@functools.lru_cache(1024)
def _read_header(header: bytes) -> _Layout:
    return _Layout(msgpack.unpackb(header, ext_hook=_read_reference, strict_map_key=True))


def _read_reference(kind: int, reference: bytes) -> _Array | _Bytes:
    if kind not in (_ARRAY, _BYTES):
        raise BadRequest(f"unknown kind of value ({kind})")
    position, offset = _LOCATION.unpack_from(reference)
    if kind == _BYTES:
        return _Bytes(position)
    shape = struct.unpack_from(f"<{reference[_LOCATION.size]}Q", reference, _LOCATION.size + 1)
    name = reference[_LOCATION.size + 1 + 8 * len(shape) :]
    return _Array(position, offset, shape, _dtype_of_name.get(name) or _find_dtype(name))


def _describe(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    name = _name_of_dtype.get(dtype) or dtype.name.encode()
    return struct.pack(f"<B{len(shape)}Q", len(shape), *shape) + name


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


def _with_known_dtype(array: np.ndarray) -> np.ndarray:
    native = array.dtype.newbyteorder("=")
    if native in _name_of_dtype:
        return array.astype(native)
    if array.dtype.type.__module__.startswith("ml_dtypes"):
        return array
    raise TypeError(f"arrays of dtype {array.dtype} are not supported")


@functools.cache
def _find_dtype(name: bytes) -> np.dtype:
    try:
        return find_extension_dtype(name.decode())
    except ValueError:
        raise BadRequest(f"unknown dtype {name[:32]!r}") from None


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
