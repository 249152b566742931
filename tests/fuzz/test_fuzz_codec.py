"""Bytes that were not made by us are refused, with the one error that is meant for it, and cost little memory."""

import contextlib
import itertools
import tracemalloc

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dreamfleet.checkpoint import container
from dreamfleet.errors import BadRequest, CheckpointError
from dreamfleet.rpc import codec, wire
from dreamfleet.rpc.portal import guard
from tests.fuzz.hostile import frame_cases, mutated_frames, seed_of

CASES = 40_000
MAX_BYTES = 1 << 20
MEMORY_BYTES = 64 << 20


def test_messages_only_ever_raise_bad_request(share):
    refused = tried = 0
    tracemalloc.start()
    for frames in mutated_frames(seed_of("codec"), int(share * CASES)):
        tried += 1
        try:
            codec.decode(frames, MAX_BYTES)
        except BadRequest:
            refused += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{tried} messages, {refused} refused, {peak / 1e6:.1f} MB at most")
    assert tried // 2 < refused, "the cases are as hostile as they should be"
    assert peak < MEMORY_BYTES


def test_envelopes_only_ever_raise_bad_request(share):
    for frames in itertools.islice(frame_cases(seed_of("wire"), ["act", "save"]), int(share * CASES)):
        with contextlib.suppress(BadRequest):
            wire.read_answer(frames)
            *_, start = wire.read_envelope(memoryview(frames[0]))
            wire.decode_payload(frames, MAX_BYTES, start)


def test_portal_bodies_only_ever_raise_bad_request(share):
    rng = np.random.default_rng(seed_of("portal"))
    body = bytearray(b"".join(guard.packlib.pack({"a": np.arange(5), "b": "text", "c": [b"1", None]})))
    for _ in range(int(share * CASES / 4)):
        changed = body.copy()
        for position in rng.integers(0, len(body), rng.integers(1, 5)):
            changed[position] = rng.integers(256)
        with contextlib.suppress(BadRequest):
            guard.read_tree(memoryview(bytes(changed[: rng.integers(8, len(body) + 1)])))


def test_checkpoint_parts_only_ever_raise_checkpoint_error(share, tmp_path):
    """The checksum is given as that of the damaged file, as somebody who means harm would."""
    path = tmp_path / "part.bin"
    container.write_tree(path, {"a": np.arange(50.0), "b": ["text", b"bytes", 3, None, (True, 1 << 80)]})
    whole = path.read_bytes()
    rng = np.random.default_rng(seed_of("container"))
    for _ in range(int(share * CASES / 8)):
        changed = bytearray(whole)
        for position in rng.integers(0, len(whole), rng.integers(1, 6)):
            changed[position] = rng.integers(256)
        path.write_bytes(changed[: rng.integers(len(whole) // 2, len(whole) + 1)])
        with contextlib.suppress(CheckpointError):
            container.read_tree(path, *container.checksum(path))


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(0, 400))
def test_any_bytes_at_all(frames, header_size):
    for candidate in (frames, [header_size.to_bytes(4, "little") + frames[0], *frames[1:]]):
        with contextlib.suppress(BadRequest):
            codec.decode(candidate, MAX_BYTES)
