"""Local connections speak ZeroMQ's own protocol: they work with libzmq on the other side, however the bytes arrive."""

import contextlib
import socket
import threading

import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamfleet import rpc
from dreamfleet.errors import DeadlineExceeded
from dreamfleet.rpc import wire, zmtp
from tests.rpc.rpc_links import WAIT_S

LIMIT = 1 << 20
GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00NULL" + bytes(48)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


@contextlib.contextmanager
def connected():
    """A connection after the handshake, and the plain socket at its other end."""
    ours, theirs = socket.socketpair()
    ours.settimeout(None)
    connection = zmtp.ZmtpConnection(ours, b"ROUTER", LIMIT)
    with contextlib.closing(connection), theirs:
        theirs.settimeout(WAIT_S)
        theirs.sendall(GREETING + READY)
        assert connection.read() == []
        assert connection.is_ready
        assert theirs.recv(1000).startswith(GREETING)
        yield connection, theirs


def encode(frames: list[bytes]) -> bytes:
    parts = []
    for number, frame in enumerate(frames, 1):
        more = number < len(frames)
        is_long = len(frame) > 255
        parts += [bytes([more | is_long << 1]), len(frame).to_bytes(8 if is_long else 1, "big"), frame]
    return b"".join(parts)


sizes = st.sampled_from([0, 1, 255, 256, 3000, 70_000, 200_000])


@settings(max_examples=30)
@given(
    messages=st.lists(st.lists(sizes, min_size=1, max_size=3), max_size=5),
    pieces=st.integers(1, 200),
)
def test_messages_arrive_whole_wherever_they_are_cut(messages, pieces):
    sent = [[bytes([i % 256]) * size for i, size in enumerate(sizes)] for sizes in messages]
    stream = b"".join(map(encode, sent))
    cut = len(stream) // pieces + 1
    received = []
    with connected() as (connection, theirs):
        theirs.setblocking(False)  # the socket holds less than a large frame
        for start in range(0, len(stream), cut):
            piece = stream[start : start + cut]
            while piece:
                with contextlib.suppress(BlockingIOError):
                    piece = piece[theirs.send(piece) :]
                received += connection.read()
        while len(received) < len(sent):
            received += connection.read(blocking=True)
    assert [[bytes(frame) for frame in message] for message in received] == sent


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" + bytes(8) + b"\x7f\x01\x00" + bytes(52),  # an older protocol
        GREETING.replace(b"NULL", b"CURV"),
        GREETING + encode([b"too early"]),
        GREETING + READY + b"\x02" + (LIMIT + 1).to_bytes(8, "big"),
        GREETING + READY + encode([b"x" * (LIMIT // 2)] * 2)[: LIMIT // 2 + 100],  # too large in all
        GREETING + b"\x04\x0c\x05ERROR\x05wrong",
    ],
)
def test_what_is_not_the_protocol_ends_the_connection(data):
    ours, theirs = socket.socketpair()
    connection = zmtp.ZmtpConnection(ours, b"ROUTER", LIMIT)
    with contextlib.closing(connection), theirs:
        theirs.setblocking(False)
        with pytest.raises(ConnectionError):
            while data:
                with contextlib.suppress(BlockingIOError):
                    data = data[theirs.send(data) :]
                connection.read()
            theirs.close()
            while connection.read():
                pass


def test_what_does_not_fit_the_socket_is_sent_later():
    large = b"x" * (8 * LIMIT)
    with connected() as (connection, theirs):
        connection.send([b"first", large])
        assert connection.unsent
        received = b""
        expected = encode([b"first", large])
        while len(received) < len(expected):
            received += theirs.recv(1 << 20)
            connection.flush()
        assert not connection.unsent
    assert received == expected


@contextlib.contextmanager
def libzmq_router():
    addr = rpc.resolve_addr("ipc:{auto}", "zmq")
    context = zmq.Context()
    try:
        router = context.socket(zmq.ROUTER)
        router.heartbeat_ivl, router.heartbeat_timeout = 20, 200
        router.bind(f"ipc://{addr.removeprefix('ipc:')}")
        yield addr, router
    finally:
        context.destroy(0)
        rpc.remove_addr(addr)


def receive_call(router):
    identity, *frames = router.recv_multipart()
    _, kind, number, method, start = wire.read_envelope(frames[0])
    assert kind == wire.REQUEST
    return identity, number, method, wire.decode_payload(frames, LIMIT, start)[0]


def test_calls_to_a_libzmq_socket_that_expects_signs_of_life():
    with libzmq_router() as (addr, router), rpc.make_client(addr, "client", peer="router") as client:
        monitor = router.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        future = client.call("echo", {"a": 1})
        identity, number, method, data = receive_call(router)
        assert method == "echo"
        assert not monitor.poll(1000), "the client answers, so it is not taken for dead"
        router.send_multipart([identity, *wire.encode_answer(number, data)])
        assert future.result(WAIT_S) == {"a": 1}


def test_an_answer_to_another_call_is_not_taken_for_the_one_that_was_asked_for():
    def answer(router):
        for mistake in (0, 9):
            identity, number, _, _ = receive_call(router)
            router.send_multipart([identity, *wire.encode_answer(number + mistake, f"{mistake} too high")])

    with libzmq_router() as (addr, router):
        thread = threading.Thread(target=answer, args=(router,))
        thread.start()
        with rpc.make_client(addr, "client", peer="router", threaded=False) as client:
            prepared = client.prepare("echo", {"x": np.zeros(3)})
            assert prepared.ask(WAIT_S) == "0 too high"
            with pytest.raises(DeadlineExceeded):
                prepared.ask(0.3)
        thread.join(WAIT_S)
