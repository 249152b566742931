"""One tree of arrays, numbers, strings, bytes and None in one file; the format of every checkpoint part.

Layout: magic, header length (uint64 little-endian), header (msgpack), then the array bytes in the order of the tree,
each at the next multiple of 64. Nothing in it is ever unpickled, and a file that lies gives a CheckpointError.
"""

import math
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import numpy as np

from dreamfleet.base.dtypes import find_dtype
from dreamfleet.checkpoint.files import create
from dreamfleet.errors import CheckpointError

_MAGIC = b"DFTREE\x00\x01"
_PREFIX = struct.Struct("<8sQ")
_ALIGN = 64
_CHUNK = 16 << 20
_MAX_DEPTH = 100
_MAX_INT = 1 << 63  # beyond, msgpack has no integer


def write_tree(path: Path, tree: object) -> tuple[int, int]:
    """Writes a tree and returns the size and CRC-32 of the file."""
    packer = _Packer()
    header: bytes = msgpack.Packer(unicode_errors="surrogatepass").pack(packer.pack(tree, "", 0))
    with create(path) as file:
        output = _Output(file)
        output.write(_PREFIX.pack(_MAGIC, len(header)))
        output.write(header)
        for array in packer.arrays:
            output.write(bytes(-output.size % _ALIGN))
            # Converted only now: of arrays on a device or with strides, one at a time is copied.
            native = np.asarray(array, array.dtype.newbyteorder("="), order="C")
            assert native.shape == tuple(array.shape), (native.shape, array.shape)
            flat = native.reshape(-1).view(np.uint8)
            for start in range(0, len(flat), _CHUNK):
                output.write(flat[start : start + _CHUNK].data)
    return output.size, output.crc


def check_tree(tree: object) -> None:
    """Raises a CheckpointError if the tree holds what cannot be written."""
    _Packer().pack(tree, "", 0)


def read_tree(path: Path, size: int, crc: int) -> Any:
    """Reads a tree back, after which the file is known to have the size and CRC-32 it was written with."""
    with path.open("rb") as file:
        actual = file.seek(0, 2)
        if actual != size:
            raise CheckpointError(f"{path} is damaged: it has {actual} bytes instead of {size}")
        file.seek(0)
        reader = _Input(file, size)
        try:
            tree = _unpack(_read_header(reader), reader, 0)
        # Everything that a header made of arbitrary bytes leads to.
        except (ValueError, TypeError, OverflowError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
        if reader.position != size or reader.crc != crc:
            raise CheckpointError(f"{path} is damaged: its checksum does not match")
        return tree


def checksum(path: Path) -> tuple[int, int]:
    """Size and CRC-32 of a file."""
    size = crc = 0
    buffer = memoryview(bytearray(1 << 20))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            size += count
            crc = zlib.crc32(buffer[:count], crc)
    return size, crc


class _Output:
    def __init__(self, file: BinaryIO):
        self._file = file
        self.size = 0
        self.crc = 0

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self.size += len(data)
        self.crc = zlib.crc32(data, self.crc)


class _Input:
    def __init__(self, file: BinaryIO, size: int):
        self._file = file
        self._size = size
        self.position = 0
        self.crc = 0

    def read(self, count: int) -> np.ndarray:
        # Checked before the memory is taken: no header can ask for more than the file holds.
        if not 0 <= count <= self._size - self.position:
            raise ValueError(f"{count} bytes wanted at {self.position}, but it ends at {self._size}")
        data = np.empty(count, np.uint8)
        for start in range(0, count, _CHUNK):
            chunk = data[start : start + _CHUNK].data
            if self._file.readinto(chunk) != len(chunk):  # type: ignore[attr-defined]
                raise ValueError("it ends early")
            self.crc = zlib.crc32(chunk, self.crc)
        self.position += count
        return data


class _Packer:
    """Turns a tree into what msgpack can hold, with every branch and array as `{kind: content}`."""

    def __init__(self):
        self.arrays: list = []

    def pack(self, node: Any, path: str, depth: int) -> object:
        if depth > _MAX_DEPTH:
            raise CheckpointError(f"cannot save {path[:80]}: nested deeper than {_MAX_DEPTH}")
        if isinstance(node, str):
            return str(node)
        if isinstance(node, bytes | bytearray):
            return {"bytes": self._pack_array(np.frombuffer(node, np.uint8), path)}
        if isinstance(node, np.generic):
            return {"scalar": self._pack_array(np.asarray(node), path)}
        if node is None or isinstance(node, bool | float):
            return node
        if isinstance(node, int):
            return int(node) if -_MAX_INT <= node < _MAX_INT else {"int": hex(node)}
        if isinstance(node, dict):
            pairs = [
                [self.pack(key, f"{path}/{key}", depth + 1), self.pack(value, f"{path}/{key}", depth + 1)]
                for key, value in node.items()
            ]
            return {"dict": pairs}
        if isinstance(node, list | tuple):
            kind = "list" if isinstance(node, list) else "tuple"
            return {kind: [self.pack(item, f"{path}/{index}", depth + 1) for index, item in enumerate(node)]}
        if all(hasattr(node, name) for name in ("__array__", "dtype", "shape")):
            return {"array": self._pack_array(node, path)}
        raise CheckpointError(
            f"cannot save {path or 'the tree'}: {type(node).__name__} is not an array, number, str or bytes"
        )

    def _pack_array(self, array: Any, path: str) -> list:
        try:
            name = np.dtype(array.dtype).name
            find_dtype(name)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"cannot save {path or 'the tree'}: an array of {array.dtype}") from error
        self.arrays.append(array)
        return [name, list(array.shape)]


def _read_header(reader: _Input) -> object:
    magic, length = _PREFIX.unpack(reader.read(_PREFIX.size).tobytes())
    if magic != _MAGIC:
        raise ValueError("it is not a checkpoint part")
    return msgpack.unpackb(reader.read(length).tobytes(), unicode_errors="surrogatepass", strict_map_key=True)


def _unpack(node: Any, reader: _Input, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("it is nested too deep")
    if node is None or isinstance(node, bool | float | str | int):
        return node
    if not isinstance(node, dict) or len(node) != 1:
        raise ValueError("its header is not a tree")
    ((kind, content),) = node.items()
    if kind == "int":
        return int(content, 16)
    if kind == "bytes":
        return _unpack_array(content, reader).tobytes()
    if kind == "array":
        return _unpack_array(content, reader)
    if kind == "scalar":
        return _unpack_array(content, reader)[()]
    if kind == "dict":
        return {_unpack(key, reader, depth + 1): _unpack(value, reader, depth + 1) for key, value in content}
    if kind in ("list", "tuple"):
        items = [_unpack(item, reader, depth + 1) for item in content]
        return items if kind == "list" else tuple(items)
    raise ValueError(f"its header has a node of unknown kind {kind!r}")


def _unpack_array(content: Any, reader: _Input) -> np.ndarray:
    name, shape = content
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"its header has an array of shape {shape}")
    dtype = find_dtype(name)
    reader.read(-reader.position % _ALIGN)
    return reader.read(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
