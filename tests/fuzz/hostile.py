"""What a hostile or broken peer may send, drawn from a seed: raw bytes for a socket, frames once it is connected."""

import contextlib
import socket
import struct
import zlib
from collections.abc import Callable, Iterator

import numpy as np

from dreamfleet.roles.protocol import VERSION
from dreamfleet.rpc import codec, wire
from tests.rpc.raw_peers import LocalPeer, ZmqPeer

SIGNATURE = b"\xff" + bytes(7) + b"\x01\x7f"
LOCAL_GREETING = b"\x93dfrpc" + struct.pack("<H", wire.VERSION)
PORTAL_GREETING = b"portal_handshake"
SOCKET_S = 5.0
MAX_FRAME = 4096


def greeting(mechanism: bytes = b"NULL", major: int = 3) -> bytes:
    return SIGNATURE + bytes([major, 0]) + mechanism.ljust(20, b"\0") + bytes(32)


def frame(body: bytes, flags: int = 0, size: int | None = None) -> bytes:
    """A ZMTP frame, which may claim another size than it has."""
    size = len(body) if size is None else size
    return struct.pack(">BQ", flags | 2, size) + body if size > 255 else struct.pack(">BB", flags, size) + body


def message(*frames: bytes, sizes: list[int] | None = None, count: int | None = None) -> bytes:
    """A message of a local connection, which may claim other sizes and another count than it has."""
    sizes = [len(part) for part in frames] if sizes is None else sizes
    header = struct.pack(f"<I{len(sizes)}Q", len(sizes) if count is None else count, *sizes)
    return header + b"".join(frames)


READY = frame(b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER", 4)


def request(method: str = "act", data: object = None, meta: dict | None = None, number: int = 1) -> list[bytes]:
    return [bytes(part) for part in wire.RequestEncoder(VERSION).encode(number, method, data, meta)]


def raw_cases(seed: int) -> Iterator[bytes]:
    """Bytes for a fresh connection, of every kind in turn."""
    rng = np.random.default_rng(seed)
    body = request("act", {"envid": 3, "x": np.arange(5)})[0]
    session = greeting() + READY + frame(body)
    local = LOCAL_GREETING + message(body)
    portal = PORTAL_GREETING + struct.pack("<Q", 40) + bytes(8) + struct.pack("<Q", 4) + b"act " + bytes(20)
    kinds: list[Callable[[], bytes]] = [
        lambda: rng.bytes(int(rng.integers(0, 300))),  # garbage
        lambda: greeting(rng.choice([b"NULL", b"CURVE", b"PLAIN", b"GSSAPI"])) + rng.bytes(int(rng.integers(0, 300))),
        lambda: greeting() + READY + rng.bytes(int(rng.integers(0, 300))),
        lambda: session[: int(rng.integers(len(session)))],  # cut off
        lambda: _mutate(rng, session),
        lambda: session + frame(body) * int(rng.integers(1, 20)),  # replayed
        lambda: greeting() + frame(body) + READY + READY + frame(body, 4) + frame(b"\x04PING\x00\x00", 4),  # disordered
        lambda: greeting() + READY + frame(b"x" * 100, 0, int(rng.integers(1 << 31, 1 << 62))),  # huge
        lambda: greeting() + frame(b"y" * 100, 4, 1 << 62),
        lambda: greeting() + READY + frame(b"z", 1) * 50,  # a message that does not end
        lambda: greeting(major=int(rng.integers(0, 256))) + READY + frame(body),
        lambda: LOCAL_GREETING + rng.bytes(int(rng.integers(0, 300))),
        lambda: local[: int(rng.integers(len(local)))],
        lambda: _mutate(rng, local),
        lambda: local + message(body) * int(rng.integers(1, 20)),
        lambda: LOCAL_GREETING[:6] + rng.bytes(2) + message(body),  # another version
        lambda: LOCAL_GREETING + message(b"x" * 100, sizes=[int(rng.integers(1 << 31, 1 << 62))]),
        lambda: LOCAL_GREETING + message(b"x", body, sizes=[1 << 20, 1 << 30]),
        lambda: LOCAL_GREETING + message(body, count=int(rng.integers(0, 1 << 32))),
        lambda: LOCAL_GREETING + message(*[b""] * int(rng.integers(1, 3000))) + message(body),
        lambda: _mutate(rng, portal),
        lambda: PORTAL_GREETING + struct.pack("<Q", int(rng.integers(1 << 33, 1 << 62))) + rng.bytes(50),
    ]
    while True:
        for make in kinds:
            yield make()


def frame_cases(seed: int, methods: list[str]) -> Iterator[list[bytes]]:
    """Messages of a peer that has connected: none of them asks for anything that could be carried out."""
    rng = np.random.default_rng(seed)
    number = 0
    while True:
        for method in [*methods, "nope", "", "é" * 10]:
            number += 1
            yield [rng.bytes(int(rng.integers(0, 100))) for _ in range(rng.integers(1, 4))]
            yield _cut(rng, request(method, _tree(rng), None, number))
            frames = request(method, _tree(rng), {"session": 3, "actor": 5, "sequence": "x"}, number)
            yield [_mutate(rng, frames[0][:-1]), *frames[1:]]
            yield [_envelope(rng, method, number) + rng.bytes(int(rng.integers(0, 60)))]
            yield [request(method, None, None, number)[0], *[bytes(MAX_FRAME)] * int(rng.integers(1, 8))][::-1]


def mutated_frames(seed: int, count: int) -> Iterator[list[bytes]]:
    """Encoded trees with a few bytes changed, cut off, or with their frames in another order."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        frames = [bytearray(part) for part in codec.encode(_tree(rng))]
        victim = frames[int(rng.integers(len(frames)))]
        kind = rng.integers(4)
        if kind == 0 and victim:
            victim[:] = _mutate(rng, bytes(victim))
        elif kind == 1:
            del victim[int(rng.integers(len(victim) + 1)) :]
        elif kind == 2:
            frames.reverse()
        else:
            victim += rng.bytes(int(rng.integers(1, 20)))
            victim[:4] = rng.bytes(4)
        yield [bytes(part) for part in frames]


def connect_raw(addr: str) -> socket.socket:
    if addr.startswith("ipc:"):
        raw = socket.socket(socket.AF_UNIX)
        raw.settimeout(SOCKET_S)
        raw.connect(addr.removeprefix("ipc:"))
        return raw
    return socket.create_connection(("127.0.0.1", int(addr.rpartition(":")[2])), SOCKET_S)


def throw(addr: str, data: bytes, *, is_patient: bool = False) -> None:
    """Sends bytes over a connection of their own, and hangs up; if patient, only when the other side has."""
    with contextlib.suppress(OSError), connect_raw(addr) as raw:
        raw.sendall(data)
        if is_patient:
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(1 << 16):
                pass


def throw_frames(peer: LocalPeer | ZmqPeer, cases: list[list[bytes]]) -> None:
    """Sends messages, which fails if the server stops to read, and takes in whatever is answered meanwhile."""
    for frames in cases:
        peer.send(frames)
        peer.drain()


def _tree(rng: np.random.Generator) -> dict:
    """Keys that the methods know and values that they do not expect; never all that one of them needs."""
    values = [None, 3, -1.5, "text", b"bytes", [1, [2]], {"a": {}}, True]
    arrays = [np.zeros(0, np.float32), np.arange(6, dtype=np.int64), np.zeros((2, 3, 20), np.uint8), np.float16(1)]
    keys = ["envid", "is_eval", "reward", "is_last", "stepid", "name", "priority", str(rng.integers(100))]
    chosen = rng.choice(keys, rng.integers(0, 5), replace=False)
    return {str(key): (values + arrays)[int(rng.integers(len(values + arrays)))] for key in chosen}


def _envelope(rng: np.random.Generator, method: str, number: int) -> bytes:
    name = method.encode()
    protocol, length = rng.integers(0, 3), len(name) + rng.integers(-1, 2) % 3
    fields = rng.integers(0, 256), rng.integers(0, 6), protocol, length, number
    return struct.pack("<BBBHQ", *map(int, fields)) + name


def _cut(rng: np.random.Generator, frames: list[bytes]) -> list[bytes]:
    return [frames[0][: int(rng.integers(len(frames[0])))], *frames[1:]]


def _mutate(rng: np.random.Generator, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5)) if data else 0):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed)


def seed_of(name: str) -> int:
    """A seed that belongs to a name, the same everywhere."""
    return zlib.crc32(name.encode())
