"""Nothing that arrives at a socket stops a server, or reaches a handler unasked."""

import contextlib
import socket
import struct
import threading

import msgpack
import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamfleet import rpc
from dreamfleet.errors import DeadlineExceeded
from dreamfleet.rpc import wire
from dreamfleet.rpc.messages import Failure
from tests.rpc.links import WAIT_S, make_link, wait_until
from tests.rpc.raw_peers import GREETING, connect_peer

rng = np.random.default_rng(0)


def connect_raw(link):
    if link.addr.startswith("ipc:"):
        raw = socket.socket(socket.AF_UNIX)
        raw.connect(link.addr.removeprefix("ipc:"))
    else:
        raw = socket.create_connection(("127.0.0.1", int(link.addr.rpartition(":")[2])))
    raw.settimeout(WAIT_S)
    return raw


def read_to_end(raw):
    with contextlib.suppress(ConnectionError):
        while raw.recv(65536):
            pass


def test_garbage_on_the_socket_while_an_honest_client_works(threaded_link):
    threaded_link.serve(echo=lambda data: data)
    client = threaded_link.make_client()
    greetings = [b"", GREETING, b"\xff" + bytes(8) + b"\x7f", b"portal_handshake"]
    for greeting in greetings:
        for size in (0, 1, 64, 100_000):
            with connect_raw(threaded_link) as raw, contextlib.suppress(OSError):
                raw.sendall(greeting + rng.bytes(size))
                raw.shutdown(socket.SHUT_WR)
                read_to_end(raw)
            assert client.call("echo", {"size": size}).result(WAIT_S) == {"size": size}
    assert client.connections == 1


@pytest.mark.parametrize("kind", ["zmq", "portal"])
def test_connections_that_prove_nothing_are_limited(kind, tmp_path):
    with contextlib.ExitStack() as stack:
        link = make_link(kind, tmp_path, stack)
        server = link.make_server(max_connections=4)
        server.bind("echo", lambda data: data)
        server.start()
        client = link.make_client()
        assert client.call("echo", {}).result(WAIT_S) == {}
        silent = [stack.enter_context(connect_raw(link)) for _ in range(3)]
        for _ in range(20):
            with connect_raw(link) as refused:
                read_to_end(refused)
            assert client.call("echo", {}).result(WAIT_S) == {}
        assert client.connections == 1, "who is in is not harmed"
        for raw in silent:
            raw.close()
        assert link.make_client().call("echo", {}).result(WAIT_S) == {}, "there is room again"


@pytest.fixture(params=["local", "zmq"])
def peer(request, tmp_path):
    """A server, an honest client, and a peer that can send any frames."""
    with contextlib.ExitStack() as stack:
        link = make_link(request.param, tmp_path, stack)
        server = link.make_server(max_message_bytes=1 << 20)
        server.bind("echo", lambda data: data)
        server.start()
        raw = connect_peer(link.addr, link.key_file)
        stack.callback(raw.close)
        yield raw, link.make_client(), server


def envelope(version=wire.VERSION, kind=wire.REQUEST, protocol=1, method=b"echo", number=7, length=None):
    length = len(method) if length is None else length
    return struct.pack("<BBBHQ", version, kind, protocol, length, number) + method


@pytest.mark.parametrize(
    ("frames", "number", "reason"),
    [
        ([b""], 0, "does not start with an envelope"),
        ([b"garbage"], 0, "does not start with an envelope"),
        ([b"\x00" * 30], 0, "speaks wire format 0, this server speaks wire format"),
        ([envelope(version=9)], 7, "speaks wire format 9, this server speaks wire format"),
        ([envelope(protocol=9)], 7, "speaks protocol 9, this server speaks protocol 1: install the same version"),
        ([envelope(kind=wire.REPLY)], 7, "not a request"),
        ([envelope(method=b"\xff\xfe")], 0, "does not start with an envelope"),
        ([envelope(method=b"nope")], 7, "there is no such method"),
        ([envelope()], 7, "malformed message"),
        ([envelope(length=60_000)], 0, "does not start with an envelope"),
        ([envelope() + b"\xff" * 100], 7, "cut off"),
        ([envelope() + struct.pack("<I", 1) + b"\xc0"], 7, "not a pair of metadata and data"),
        ([envelope() + struct.pack("<I", 3) + b"\x92\x05\xc0"], 7, "not a pair of metadata and data"),
        ([envelope(), bytes(2 << 20)], 7, "above the limit"),
    ],
)
def test_bad_frames_get_an_error_answer(peer, frames, number, reason):
    raw, client, server = peer
    raw.send(frames)
    answered, failure = wire.read_answer(raw.receive())
    assert answered == number
    assert isinstance(failure, Failure) and failure.is_refusal
    assert reason in failure.summary
    assert client.call("echo", 1).result(WAIT_S) == 1
    assert server.stats()["bad_requests"] == 1


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4), st.booleans())
def test_random_frames_never_stop_the_server(fuzzed, frames, has_envelope):
    raw, client = fuzzed
    raw.send([envelope() + frames[0], *frames[1:]] if has_envelope else frames)
    raw.receive()
    assert client.call("echo", 1).result(WAIT_S) == 1


@pytest.fixture(scope="module", params=["local-inline", "zmq"])
def fuzzed(request, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        link = make_link(request.param, tmp_path_factory.mktemp("fuzzed"), stack)
        link.serve(echo=lambda data: data)
        raw = connect_peer(link.addr, link.key_file)
        stack.callback(raw.close)
        yield raw, link.make_client()


def test_answers_to_clients_that_vanished_are_dropped(threaded_link):
    started, release = threading.Event(), threading.Event()

    def work(data):
        started.set()
        release.wait(WAIT_S)
        return data

    threaded_link.serve(work=work)
    vanishing = threaded_link.make_client()
    vanishing.call("work", 1)
    assert started.wait(WAIT_S)
    vanishing.close()
    release.set()
    assert threaded_link.make_client().call("work", 2).result(WAIT_S) == 2


@pytest.fixture
def tcp(tmp_path):
    """A server over TCP with a key, that counts what reaches its handler."""
    key_file = tmp_path / "run.key"
    rpc.make_key(key_file)
    addr = rpc.resolve_addr("localhost:{auto}", "zmq")
    server = rpc.make_server(addr, "server", key_file=key_file)
    seen = []
    server.bind("echo", lambda data: seen.append(data))
    with server:
        yield addr, key_file, seen


def test_peers_without_the_key_get_no_answer(tcp, tmp_path, caplog):
    addr, key_file, seen = tcp
    other = tmp_path / "other.key"
    rpc.make_key(other)
    with rpc.make_client(addr, "stranger", peer="server", key_file=other) as stranger:
        assert not stranger.wait_connected(0.3)
        with pytest.raises(DeadlineExceeded):
            stranger.call("echo", 1, deadline_s=0.1).result()
        wait_until(lambda: "server: refused" in caplog.text)
    assert seen == []
    assert len([record for record in caplog.records if record.message.startswith("server: refused")]) == 1
    with rpc.make_client(addr, "friend", peer="server", key_file=key_file) as friend:
        friend.call("echo", 2).result(WAIT_S)
    assert seen == [2]


@pytest.mark.parametrize("knows_the_server", [True, False])
def test_neither_plain_peers_nor_those_that_know_only_the_public_key_are_let_in(tcp, knows_the_server):
    addr, key_file, seen = tcp
    context = zmq.Context()
    raw = context.socket(zmq.DEALER)
    if knows_the_server:
        raw.curve_publickey, raw.curve_secretkey = zmq.curve_keypair()
        raw.curve_serverkey = key_file.read_bytes().split()[0]
    raw.connect(f"tcp://127.0.0.1:{addr.rpartition(':')[2]}")
    with contextlib.suppress(zmq.Again):  # it was refused already
        raw.send(wire.RequestEncoder(1).encode(1, "echo", 1, None)[0], zmq.DONTWAIT)
    assert not raw.poll(300)
    assert seen == []
    context.destroy(0)


@pytest.mark.parametrize("kind", ["zmq", "portal"])
def test_only_loopback_is_bound(kind, tmp_path):
    with contextlib.ExitStack() as stack:
        link = make_link(kind, tmp_path, stack)
        link.serve(echo=lambda data: data)
        check_loopback_only(int(link.addr.rpartition(":")[2]))


def check_loopback_only(port):
    with socket.socket() as probe:  # would be refused if the server listened on all interfaces
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.2", port))
        probe.listen()


class PortalPeer:
    """Speaks the portal protocol by hand."""

    def __init__(self, link):
        self.raw = connect_raw(link)
        self.raw.sendall(b"portal_handshake")

    def send(self, payload):
        self.raw.sendall(len(payload).to_bytes(8, "little") + payload)

    def request(self, method, body):
        self.send(bytes(8) + len(method).to_bytes(8, "little") + method + body)

    def answer(self):
        size = int.from_bytes(self.read(8), "little")
        message = self.read(size)
        return int.from_bytes(message[8:16], "little"), message[16:].decode()

    def read(self, size):
        data = b""
        while len(data) < size:
            part = self.raw.recv(size - len(data))
            assert part
            data += part
        return data


def body(tree, specs, *buffers):
    parts = [msgpack.packb(tree), msgpack.packb(specs), *buffers]
    sizes = [len(part) for part in parts]
    return struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *sizes) + b"".join(parts)


@pytest.fixture
def portal_link(tmp_path):
    with contextlib.ExitStack() as stack:
        yield make_link("portal", tmp_path, stack)


@pytest.mark.parametrize("prefix", [bytes(8), b"\xff" * 8, (1 << 40).to_bytes(8, "little")])
def test_portal_survives_a_bad_length(portal_link, prefix):
    portal_link.serve(echo=lambda data: data)
    client = portal_link.make_client()
    peer = PortalPeer(portal_link)
    peer.raw.sendall(prefix + b"x" * 100)
    read_to_end(peer.raw)
    peer.raw.close()
    assert client.call("echo", 1).result(WAIT_S) == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"x",
        bytes(16),
        bytes(8) + b"\xff" * 8 + b"echo",
        bytes(8) + (4).to_bytes(8, "little") + b"echo" + (1 << 33).to_bytes(8, "little"),
        bytes(8) + (4).to_bytes(8, "little") + b"echo" + struct.pack("<QQQ", 2, 1 << 62, 1 << 62),
        bytes(8) + (4).to_bytes(8, "little") + b"echo" + rng.bytes(100),
    ],
)
def test_portal_refuses_undecodable_messages(portal_link, payload):
    portal_link.serve(echo=lambda data: data)
    client = portal_link.make_client()
    peer = PortalPeer(portal_link)
    peer.send(payload)
    status, text = peer.answer()
    assert status != 0
    assert text.startswith("[refused server.")
    peer.raw.close()
    assert client.call("echo", 1).result(WAIT_S) == 1


def test_portal_does_not_attach_shared_memory(portal_link):
    from multiprocessing import shared_memory

    seen = []
    portal_link.serve(echo=seen.append)
    memory = shared_memory.SharedMemory(create=True, size=64)
    try:
        peer = PortalPeer(portal_link)
        peer.request(b"echo", body([None], [["sharray", [64], "|u1", memory.name]], b"\x00"))
        status, text = peer.answer()
        assert status != 0
        assert "not accepted" in text
        peer.raw.close()
        assert seen == []
        shared_memory.SharedMemory(name=memory.name).close()
    finally:
        memory.close()
        memory.unlink()


def test_a_portal_server_that_lies_does_not_stop_the_client(portal_link, caplog):
    port = int(portal_link.addr.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)) as listener:
        client = portal_link.make_client()
        future = client.call("echo", 1, repeat=True)
        for reply in (b"\xff" * 8 + b"x", (4).to_bytes(8, "little") + b"abcd" + bytes(8)):
            peer, _ = listener.accept()
            peer.settimeout(WAIT_S)
            peer.recv(16)
            peer.sendall(reply)
            read_to_end(peer)
            peer.close()
    portal_link.serve(echo=lambda data: data)
    assert future.result(WAIT_S) == 1


@pytest.mark.parametrize("greeting", [b"", b"portal"])
def test_portal_forgets_peers_that_leave_before_they_have_greeted(portal_link, greeting):
    server = portal_link.serve(echo=lambda data: data)
    raw = connect_raw(portal_link)
    raw.sendall(greeting)
    wait_until(lambda: server.stats()["clients"] == 1)
    raw.close()
    wait_until(lambda: server.stats()["clients"] == 0)
