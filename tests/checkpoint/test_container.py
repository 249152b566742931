"""The file format of checkpoint parts: what goes in comes out, and damaged files never give anything but an error."""

import contextlib
import struct
import zlib

import hypothesis.extra.numpy as hnp
import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dreamfleet.checkpoint.container import checksum, read_tree, write_tree
from dreamfleet.errors import CheckpointError

dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.unsigned_integer_dtypes(),
    hnp.floating_dtypes(),
    hnp.complex_number_dtypes(),
)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
scalars = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, (1,))).map(lambda array: array[0])
text = st.text(st.characters(exclude_categories=()))
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), text, st.binary(), arrays, scalars)
keys = st.one_of(text, st.integers(), st.binary(), st.tuples(st.integers(), text))
trees = st.recursive(
    leaves,
    lambda nodes: st.one_of(
        st.lists(nodes, max_size=4), st.lists(nodes, max_size=4).map(tuple), st.dictionaries(keys, nodes, max_size=4)
    ),
    max_leaves=12,
)
any_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same(actual, expected):
    if isinstance(expected, np.ndarray | np.generic):
        assert type(actual) is type(expected)
        assert actual.dtype == expected.dtype.newbyteorder("=")
        assert actual.shape == expected.shape
        assert actual.tobytes() == expected.astype(actual.dtype).tobytes()
        return
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for left, right in zip(actual, expected, strict=True):
            assert_same(left, right)
    elif isinstance(expected, float):
        assert struct.pack("d", actual) == struct.pack("d", expected)
    else:
        assert actual == expected


@any_file
@given(trees)
def test_round_trip(tmp_path, tree):
    path = tmp_path / "part.bin"
    size, crc = write_tree(path, tree)
    assert (size, crc) == checksum(path) == (path.stat().st_size, zlib.crc32(path.read_bytes()))
    assert_same(read_tree(path, size, crc), tree)


def test_arrays_are_aligned_and_come_back_writable(tmp_path):
    path = tmp_path / "part.bin"
    tree = {"a": np.arange(3, dtype=np.uint8), "b": np.full(8, 7.0), "strided": np.arange(24).reshape(4, 6)[::2, ::3].T}
    restored = read_tree(path, *write_tree(path, tree))
    assert path.read_bytes().index(np.full(8, 7.0).tobytes()) % 64 == 0
    assert_same(restored, tree)
    restored["b"][0] = 1


def test_extended_dtypes(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path = tmp_path / "part.bin"
    array = np.arange(7).astype(ml_dtypes.bfloat16)
    assert_same(read_tree(path, *write_tree(path, array)), array)


@pytest.mark.parametrize("leaf", [{1, 2}, object(), np.array(["text"]), np.array([None]), np.zeros(2, "i4,f4")])
def test_what_cannot_be_stored_is_named(tmp_path, leaf):
    with pytest.raises(CheckpointError, match="/agent/1"):
        write_tree(tmp_path / "part.bin", {"agent": [0, leaf]})


def test_cycles_are_refused(tmp_path):
    tree: list = []
    tree.append(tree)
    with pytest.raises(CheckpointError, match="nested"):
        write_tree(tmp_path / "part.bin", tree)


def read_bytes(path, data):
    path.write_bytes(data)
    return read_tree(path, len(data), zlib.crc32(data))


def with_header(header, body=b""):
    data = struct.pack("<8sQ", b"DFTREE\x00\x01", len(header)) + header
    return data + bytes(-len(data) % 64) + body


@any_file
@given(trees, st.data())
def test_changed_bytes_are_noticed(tmp_path, tree, data):
    path = tmp_path / "part.bin"
    size, crc = write_tree(path, tree)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, size - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"part\.bin"):
        read_tree(path, size, crc)


@any_file
@given(st.binary(), st.binary())
def test_hostile_bytes_only_raise_checkpoint_errors(tmp_path, header, body):
    for data in (header, with_header(header, body)):
        with contextlib.suppress(CheckpointError):
            read_bytes(tmp_path / "part.bin", data)


nodes = st.recursive(
    st.one_of(st.none(), st.integers(-(2**63), 2**63), st.text(max_size=3), st.binary(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["int", "bytes", "array", "scalar", "dict", "list", "tuple", "x"]),
            inner,
            min_size=1,
            max_size=2,
        ),
        st.tuples(
            st.sampled_from(["uint8", "float64", "O", "finfo", "object", "bfloat16", "V4"]), st.lists(inner, max_size=3)
        ),
    ),
    max_leaves=10,
)


@any_file
@given(nodes, st.binary(max_size=200))
def test_hostile_headers_only_raise_checkpoint_errors(tmp_path, node, body):
    with contextlib.suppress(CheckpointError):
        read_bytes(tmp_path / "part.bin", with_header(msgpack.packb(node), body))


@pytest.mark.parametrize(
    "node",
    [
        {"array": ["uint8", [2**62]]},
        {"array": ["uint8", [2**40, 2**40, 2**40]]},
        {"array": ["uint8", [-1]]},
        {"array": ["uint8", [0, 2**63]]},
        {"array": ["object", [1]]},
        {"array": ["O", [1]]},
        {"array": ["finfo", [1]]},
        {"array": ["uint8", [1] * 100]},
        {"dict": [[{"list": []}, 1]]},
        {"pickle": "x"},
        [1, 2],
    ],
)
def test_headers_that_lie(tmp_path, node):
    with pytest.raises(CheckpointError):
        read_bytes(tmp_path / "part.bin", with_header(msgpack.packb(node), bytes(64)))


def test_deep_headers_and_long_claims(tmp_path):
    deep = b"\x81\xa4list\x91" * 200 + b"\xc0"
    with pytest.raises(CheckpointError):
        read_bytes(tmp_path / "part.bin", with_header(deep))
    with pytest.raises(CheckpointError):
        read_bytes(tmp_path / "part.bin", struct.pack("<8sQ", b"DFTREE\x00\x01", 2**63))
