"""Frames on a local socket arrive however their bytes are cut; whatever is no frame ends the connection."""

import contextlib
import itertools
import select
import socket
import struct
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamfleet import rpc
from dreamfleet.errors import BadRequest, DeadlineExceeded
from dreamfleet.rpc import wire
from dreamfleet.rpc.local.connection import Connection
from tests.rpc.links import WAIT_S, wait_until
from tests.rpc.raw_peers import GREETING, LocalPeer, pack

LIMIT = 1 << 20
OTHER_GREETING = GREETING[:6] + struct.pack("<H", 777)


@contextlib.contextmanager
def connected(greeting=GREETING):
    """A connection after the greetings, and the plain socket at its other end."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 1, 0))  # as ours have
    connection = Connection(ours, LIMIT)
    with contextlib.closing(connection), theirs:
        theirs.settimeout(WAIT_S)
        theirs.sendall(greeting)
        if greeting:
            assert connection.read() == []
            assert connection.is_ready
        assert theirs.recv(1000) == GREETING
        yield connection, theirs


sizes = st.sampled_from([0, 1, 255, 256, 3000, 65_536, 65_537, 70_000, 200_000])
message_sizes = st.lists(st.lists(sizes, min_size=1, max_size=4), max_size=5)


def make_messages(message_sizes):
    counter = itertools.count()
    return [[bytes([next(counter) % 256]) * size for size in sizes] for sizes in message_sizes]


def feed(connection, theirs, pieces, count):
    """What a connection reads of a stream that comes in pieces, until there are `count` messages."""
    received = []
    theirs.setblocking(False)  # the socket holds less than a large frame
    for piece in pieces:
        while piece:
            with contextlib.suppress(BlockingIOError):
                piece = piece[theirs.send(piece) :]
            received += connection.read()
    deadline = time.monotonic() + WAIT_S
    while len(received) < count:
        assert time.monotonic() < deadline, "a message that was sent is not there"
        received += connection.read(blocking=True)
    return [[bytes(frame) for frame in message] for message in received]


@settings(max_examples=40, deadline=None)
@given(message_sizes=message_sizes, pieces=st.integers(1, 200))
def test_messages_arrive_whole_in_even_pieces(message_sizes, pieces):
    sent = make_messages(message_sizes)
    stream = b"".join(map(pack, sent))
    cut = len(stream) // pieces + 1
    with connected() as (connection, theirs):
        parts = [stream[start : start + cut] for start in range(0, len(stream), cut)]
        assert feed(connection, theirs, parts, len(sent)) == sent


@settings(max_examples=60, deadline=None)
@given(data=st.data(), message_sizes=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), max_size=4))
def test_messages_arrive_whole_wherever_they_are_cut(data, message_sizes):
    """Also inside of the greeting, of a count and of a length."""
    sent = make_messages(message_sizes)
    stream = GREETING + b"".join(map(pack, sent))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1))))
    parts = [stream[start:end] for start, end in itertools.pairwise([0, *cuts, len(stream)])]
    with connected(greeting=b"") as (connection, theirs):
        assert feed(connection, theirs, parts, len(sent)) == sent
        assert connection.is_ready


def test_large_frames_are_aligned_memory_of_their_own():
    with connected() as (connection, theirs):
        sender = threading.Thread(target=theirs.sendall, args=(pack([b"a", b"b" * 300_000, b"c" * 100_000]),))
        sender.start()
        messages = []
        while not messages:
            messages = connection.read(blocking=True)
        sender.join(WAIT_S)
    [[_, large, other]] = messages
    for frame in (large, other):
        array = np.frombuffer(frame, np.uint8)
        assert array.flags.writeable and array.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" + bytes(8) + b"\x7f\x03\x00" + bytes(52),  # ZeroMQ
        b"portal_handshake",
        GREETING[:3] + b"x",
        OTHER_GREETING,
        GREETING + struct.pack("<I", 0),  # a message without frames
        GREETING + struct.pack("<I", (1 << 16) + 1),
        GREETING + b"\xff" * 4,
        GREETING + struct.pack("<IQ", 1, LIMIT + 1),
        GREETING + struct.pack("<IQ", 1, 1 << 63),
        GREETING + struct.pack("<IQQ", 2, LIMIT // 2 + 1, LIMIT // 2),  # too large in all
        GREETING + pack([b"fine"]) + struct.pack("<IQ", 1, LIMIT + 1),
    ],
)
def test_what_is_not_the_protocol_ends_the_connection_before_it_takes_memory(data):
    ours, theirs = socket.socketpair()
    connection = Connection(ours, LIMIT)
    with contextlib.closing(connection), theirs:
        theirs.sendall(data)
        with pytest.raises((ConnectionRefusedError, ConnectionAbortedError)):
            while connection.read():
                pass


@settings(max_examples=200, deadline=None)
@given(has_greeting=st.booleans(), data=st.binary(max_size=100))
def test_any_bytes_are_messages_or_the_end_of_the_connection(has_greeting, data):
    ours, theirs = socket.socketpair()
    connection = Connection(ours, LIMIT)
    with contextlib.closing(connection), theirs:
        theirs.sendall(GREETING * has_greeting + data)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError):
            while True:
                connection.read()


def test_what_does_not_fit_the_socket_is_sent_later():
    large = b"x" * (8 * LIMIT)
    with connected() as (connection, theirs):
        connection.send([b"first", large])
        assert connection.unsent
        received = b""
        expected = pack([b"first", large])
        while len(received) < len(expected):
            received += theirs.recv(1 << 20)
            connection.flush()
        assert not connection.unsent
    assert received == expected


@contextlib.contextmanager
def listening():
    """A socket where a client of ours expects its server."""
    addr = rpc.resolve_addr("ipc:{auto}", "auto")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(WAIT_S)
        listener.bind(addr.removeprefix("ipc:"))
        listener.listen()
        yield addr, listener
    rpc.remove_addr(addr)


@contextlib.contextmanager
def accepted(listener):
    peer = LocalPeer(listener.accept()[0])
    with contextlib.closing(peer):
        yield peer


@pytest.mark.parametrize("threaded", [True, False])
def test_a_server_that_stays_silent_is_tried_again(threaded):
    with listening() as (addr, listener):
        options = {"peer": "server", "threaded": threaded, "greeting_s": 0.1}
        with rpc.make_client(addr, "client", **options) as client:
            waiting = threading.Thread(target=client.wait_connected, args=(WAIT_S,))
            waiting.start()
            silent, _ = listener.accept()
            with silent, contextlib.ExitStack() as stack:
                while not client.connected:  # one that is greeted too late is given up like the first
                    peer = stack.enter_context(listener.accept()[0])
                    with contextlib.suppress(OSError):
                        peer.sendall(GREETING)
                    wait_until(lambda: client.connected or select.select([listener], [], [], 0)[0])
                waiting.join(WAIT_S)


def test_a_peer_that_stays_silent_keeps_nobody_waiting(tmp_path):
    addr = f"ipc:{tmp_path}/s"
    server = rpc.make_server(addr, "server")
    server.bind("echo", lambda data: data)
    with server, contextlib.ExitStack() as stack:
        for greeting in (b"", GREETING[:4], GREETING, GREETING + b"\x01\x00", GREETING + struct.pack("<IQ", 1, 1000)):
            raw = stack.enter_context(socket.socket(socket.AF_UNIX))
            raw.connect(addr.removeprefix("ipc:"))
            raw.sendall(greeting)
        with rpc.make_client(addr, "client", peer="server") as client:
            assert client.call("echo", 1).result(WAIT_S) == 1


@pytest.mark.parametrize("threaded", [True, False])
def test_a_server_of_another_wire_format_fails_the_calls(threaded, caplog):
    with listening() as (addr, listener), rpc.make_client(addr, "client", peer="replay", threaded=threaded) as client:
        futures = [client.call("sample", repeat=True), client.call("sample")]
        accepted = []  # kept: the end of a connection may overtake what was sent before it

        def greet():
            accepted.append(listener.accept()[0])
            accepted[0].sendall(OTHER_GREETING)

        answers = threading.Thread(target=greet)
        answers.start()
        versions = rf"speaks wire format 777, this side speaks wire format {wire.VERSION}: install the same version"
        for future in futures:
            with pytest.raises(BadRequest, match=versions):
                future.result(WAIT_S)
        answers.join(WAIT_S)
        accepted[0].close()
    assert "wire format 777" in caplog.text


def test_a_client_of_another_wire_format_is_refused_with_a_line(tmp_path, caplog):
    with rpc.make_server(f"ipc:{tmp_path}/s", "replay"), socket.socket(socket.AF_UNIX) as raw:
        raw.connect(f"{tmp_path}/s")
        raw.settimeout(WAIT_S)
        raw.sendall(OTHER_GREETING)
        assert raw.recv(1000) == GREETING, "so that the other side can name both versions too"
        with contextlib.suppress(ConnectionResetError):
            assert raw.recv(1000) == b""
        wait_until(lambda: caplog.records)
    versions = f"speaks wire format 777, this side speaks wire format {wire.VERSION}: install the same version"
    assert [versions in record.message for record in caplog.records] == [True]


def receive_call(peer):
    frames = peer.receive()
    _, kind, _, number, method, start = wire.read_envelope(memoryview(frames[0]))
    assert kind == wire.REQUEST
    return number, method, wire.decode_payload(frames, LIMIT, start)[0]


def test_an_answer_to_another_call_is_not_taken_for_the_one_that_was_asked_for():
    def answer(listener):
        with accepted(listener) as peer:
            for mistake in (0, 9):
                number, _, _ = receive_call(peer)
                reply = wire.encode_answer(number + mistake, f"{mistake} too high")
                with contextlib.suppress(OSError):  # the client may have given up already
                    peer.send([bytes(frame) for frame in reply])
            is_done.wait(WAIT_S)

    is_done = threading.Event()
    with listening() as (addr, listener):
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with rpc.make_client(addr, "client", peer="server", threaded=False) as client:
            prepared = client.prepare("echo", {"x": np.zeros(3)})
            assert prepared.ask(WAIT_S) == "0 too high"
            with pytest.raises(DeadlineExceeded):
                prepared.ask(0.3)
        is_done.set()
        thread.join(WAIT_S)


@pytest.mark.parametrize("threaded", [True, False])
def test_an_answer_that_cannot_be_read_fails_its_call_alone(threaded, caplog):
    def answer(listener):
        with accepted(listener) as peer:
            number, _, _ = receive_call(peer)
            peer.send([bytes(wire.encode_answer(number, {})[0][:-1]) + b"\xc1"])
            number, _, data = receive_call(peer)
            peer.send([bytes(frame) for frame in wire.encode_answer(number, data)])

    with listening() as (addr, listener):
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with rpc.make_client(addr, "client", peer="server", threaded=threaded) as client:
            with pytest.raises(BadRequest, match="malformed"):
                client.call("echo", 1).result(WAIT_S)
            assert client.call("echo", 2).result(WAIT_S) == 2
            assert client.connections == 1
        thread.join(WAIT_S)
    assert "server sent an answer that cannot be read" in caplog.text
