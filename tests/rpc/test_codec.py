"""The codec gives back what it was given, and refuses everything else with `BadRequest`."""

import contextlib
import struct

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dreamfleet.errors import BadRequest
from dreamfleet.rpc import codec

DTYPES = ["bool", "int8", "uint8", "int32", "uint16", "int64", "uint64", "float16", "float32", "float64", "complex64"]

arrays = npst.arrays(
    st.sampled_from([np.dtype(name) for name in DTYPES]),
    npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(),
    st.binary(),
    arrays,
)
trees = st.recursive(
    leaves,
    lambda children: st.one_of(st.lists(children, max_size=4), st.dictionaries(st.text(), children, max_size=4)),
    max_leaves=12,
)


def assert_same(actual, expected):
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert isinstance(actual, np.ndarray)
        assert actual.dtype == expected.dtype.newbyteorder("=")
        assert actual.flags.writeable
        np.testing.assert_array_equal(actual, expected)
    else:
        assert type(actual) is type(expected)
        assert actual == expected or (actual != actual and expected != expected)


def round_trip(tree):
    return codec.decode([bytes(frame) for frame in codec.encode(tree)])


@given(trees)
def test_round_trip(tree):
    assert_same(round_trip(tree), tree)


def decode_or_refuse(frames):
    with contextlib.suppress(BadRequest):
        codec.decode(frames)


@given(st.binary(max_size=200), st.lists(st.binary(max_size=50), max_size=2))
def test_random_bytes_only_ever_raise_bad_request(head, others):
    decode_or_refuse([head, *others])
    decode_or_refuse([len(head).to_bytes(4, "little") + head, *others])


@settings(max_examples=300)
@given(trees, st.data())
def test_mutated_messages_only_ever_raise_bad_request(tree, data):
    frames = [bytearray(frame) for frame in codec.encode((tree, np.zeros(70_000, np.uint8)))]
    for _ in range(data.draw(st.integers(1, 4))):
        frame = frames[0]
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frames[0] = frames[0][: data.draw(st.integers(0, len(frames[0])))] or frames[0]
    decode_or_refuse(frames)


def test_no_frames_are_refused():
    with pytest.raises(BadRequest):
        codec.decode([])


def test_large_arrays_travel_in_frames_of_their_own_and_arrive_aligned():
    image = np.arange(300_000, dtype=np.uint8).reshape(100, 3000)
    frames = codec.encode({"image": image, "reward": np.float32(3), "blob": bytes(100_000)})
    assert len(frames) == 3
    assert np.shares_memory(frames[1], image)
    aligned = codec.empty_aligned(image.nbytes)
    aligned[:] = frames[1]
    unaligned = codec.empty_aligned(image.nbytes + 1)[1:]
    unaligned[:] = frames[1]
    for received in (aligned, unaligned, frames[1].tobytes()):
        result = codec.decode([frames[0], received, frames[2]])
        assert result["image"].ctypes.data % 64 == 0
        assert_same(result, {"image": image, "reward": np.float32(3), "blob": bytes(100_000)})
        assert np.shares_memory(result["image"], np.frombuffer(received, np.uint8)) == (received is aligned)
        result["image"][:] = 0


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(4, 6)[::2, ::3],
        np.arange(24.0).reshape(4, 6).T,
        np.asfortranarray(np.ones((300, 301), np.float32)),
        np.arange(5, dtype=">i4"),
        np.broadcast_to(np.float32(7), (3, 4)),
        np.zeros((0, 3), np.float32),
    ],
)
def test_any_layout_of_memory(array):
    assert_same(round_trip({"x": array})["x"], array)


def test_scalars_of_numpy_become_arrays_without_dimensions():
    result = round_trip([np.float64(1.5), np.bool_(True), np.int8(-3)])
    assert [value.shape for value in result] == [(), (), ()]
    assert [value.dtype.name for value in result] == ["float64", "bool", "int8"]


def test_subclasses_travel_as_what_they_extend():
    class Name(str):
        pass

    assert round_trip({Name("a"): Name("b"), "c": np.str_("d")}) == {"a": "b", "c": "d"}


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"obs": {"image": object()}}, "obs.image"),
        ({"obs": [1, {"x": np.array([{}], object)}]}, r"obs\[1\].x"),
        ({"fn": len}, "fn"),
        ({"names": np.array(["a"])}, "names"),
        ({"big": 1 << 70}, "big"),
        ({"a": {3: 1}}, "a"),
        (set(), "the data"),
        ({"text": "\ud800"}, "text"),
    ],
)
def test_what_cannot_travel_is_named(tree, path):
    with pytest.raises(TypeError, match=f"cannot send {path}"):
        codec.encode(tree)


def test_a_tree_that_contains_itself_is_refused():
    tree: dict = {}
    tree["self"] = tree
    with pytest.raises(TypeError, match="contains itself"):
        codec.encode(tree)


def test_deeply_nested_messages_are_refused():
    header = b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(BadRequest):
        codec.decode([len(header).to_bytes(4, "little") + header])


def test_cut_off_messages_are_refused():
    frame = codec.encode({"x": np.arange(10), "y": [1, 2]})[0]
    for size in range(len(frame) - 64):
        with pytest.raises(BadRequest):
            codec.decode([frame[:size]])


def test_the_limit_counts_all_frames():
    frames = codec.encode(np.zeros(100_000, np.uint8))
    codec.decode(frames, sum(map(len, frames)))
    with pytest.raises(BadRequest, match="above the limit"):
        codec.decode(frames, sum(map(len, frames)) - 1)


def forge(shape, dtype=b"uint8", position=0, offset=0, kind=1, packed=b"", large=()):
    """A message with one reference that `encode` would not make."""
    reference = struct.pack("<IQB", position, offset, len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + dtype
    header = msgpack.packb([msgpack.ExtType(kind, reference)])
    return [len(header).to_bytes(4, "little") + header + packed, *large]


@pytest.mark.parametrize(
    "frames",
    [
        forge((5,), packed=bytes(4)),
        forge((1 << 63, 1 << 63), packed=bytes(4)),
        forge((1 << 32, 1 << 32, 1 << 32), packed=bytes(4)),
        forge((4,), offset=1 << 62, packed=bytes(4)),
        forge((2,), dtype=b"object", packed=bytes(16)),
        forge((2,), dtype=b"O", packed=bytes(16)),
        forge((2,), dtype=b"float99", packed=bytes(16)),
        forge((2,), dtype=b"os.system", packed=bytes(16)),
        forge((2,), dtype=b"\xff\xfe", packed=bytes(16)),
        forge((3,), position=1, large=[bytes(4)]),
        forge((1 << 40,), position=1, large=[bytes(4)]),
        forge((4,), position=2, large=[bytes(4)]),
        forge((4,), position=1 << 31, large=[bytes(4)]),
        forge((4,), kind=9, packed=bytes(4)),
        forge((4,), kind=2, position=7, packed=bytes(4)),
        forge((1,) * 65, packed=bytes(4)),
    ],
)
def test_forged_references_are_refused(frames):
    with pytest.raises(BadRequest):
        codec.decode(frames)


def test_a_buffer_cannot_be_claimed_twice():
    (head, large) = codec.encode(bytes(100_000))
    header = head[4:]
    twice = b"\x92" + header + header
    with pytest.raises(BadRequest, match="used twice"):
        codec.decode([len(twice).to_bytes(4, "little") + twice, large])


def test_bfloat16_travels_by_name():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for size in (3, 100_000):
        array = np.arange(size).astype(ml_dtypes.bfloat16)
        assert_same(round_trip({"x": array, "y": array[0]}), {"x": array, "y": array[0]})


@pytest.mark.parametrize("meta", [None, {}, {"session": "abc", "wait_s": 1.5}])
def test_messages_with_the_same_header_share_nothing(meta):
    trees = [[meta, {"x": np.full(3, i, np.float32), "flag": np.bool_(i), "id": 7}] for i in range(2)]
    first, second = ([bytes(frame) for frame in codec.encode(tree)] for tree in trees)
    assert first[0][: 4 + first[0][0]] == second[0][: 4 + second[0][0]]
    spoilt = codec.decode(first)
    spoilt[1]["x"][:] = -1
    spoilt[1]["more"] = spoilt[1].pop("id")
    if meta is not None:
        spoilt[0]["more"] = 1
    assert_same(codec.decode(second), trees[1])
    assert_same(codec.decode(first), trees[0])


def test_what_is_written_to_a_prepared_tree_is_in_its_message():
    large = np.zeros(70_000, np.int16)
    tree = {"id": 3, "flag": np.zeros((), bool), "x": np.ones((2, 5), np.float64), "large": large, "name": "abc"}
    frames, data = codec.prepare([{"session": "abc"}, tree], b"prefix")
    before = [bytes(frame) for frame in frames]
    assert_same(codec.decode(before, start=6), [{"session": "abc"}, tree])
    data[1]["flag"][...], data[1]["x"][1], data[1]["large"][-1] = True, 2.5, 9
    assert all(data[1][key].ctypes.data % codec.ALIGN == 0 for key in ("flag", "x", "large"))
    x = np.array([[1.0] * 5, [2.5] * 5])
    expected = {**tree, "flag": np.array(True), "x": x, "large": np.array([0] * 69_999 + [9], np.int16)}
    assert_same(codec.decode([bytes(frame) for frame in frames], start=6), [{"session": "abc"}, expected])
    assert not large.any()
