"""Plain portal clients can call our servers, and our clients plain portal servers."""

import contextlib
import multiprocessing
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamfleet import rpc
from dreamfleet.errors import BadRequest, Disconnected, RemoteError, RpcError, RunOver
from dreamfleet.rpc.portal import data
from dreamfleet.rpc.portal.client import PortalEncoder
from tests.rpc.links import WAIT_S, make_link, wait_until


@pytest.fixture
def portal():
    before = multiprocessing.get_start_method(allow_none=True)
    from dreamfleet.rpc.portal.guard import portal

    assert multiprocessing.get_start_method(allow_none=True) == before
    return portal


@pytest.fixture
def portal_link(tmp_path):
    with contextlib.ExitStack() as stack:
        yield make_link("portal", tmp_path, stack)


@dataclass
class Item:
    value: int
    rows: int = 1


def port_of(link):
    return int(link.addr.rpartition(":")[2])


def test_the_library_is_only_imported_when_it_is_used():
    code = "import sys, dreamfleet.rpc; print('portal' in sys.modules, 'jax' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == ["False", "False"]


def test_a_plain_client_calls_our_server(portal_link, portal):
    server = portal_link.make_server(name="replay")
    server.bind("add", lambda data: {"sum": data["x"].sum(), "text": data["text"]})
    server.bind("sample", lambda data: {"was_none": data is None})
    server.bind("fail", lambda data: 1 // 0)
    server.bind("refuse", lambda data: (_ for _ in ()).throw(BadRequest("wrong shape")))
    server.start()
    client = portal.Client(port_of(portal_link), logging=False)
    try:
        result = client.add({"x": np.arange(4), "text": "hi"}).result(WAIT_S)
        assert set(result) == {"sum", "text"}
        assert (int(result["sum"]), result["text"]) == (6, "hi")
        assert bool(client.sample().result(WAIT_S)["was_none"])
        with pytest.raises(RuntimeError, match=r"\[failed replay.fail\] ZeroDivisionError"):
            client.fail({}).result(WAIT_S)
        with pytest.raises(RuntimeError, match=r"\[refused replay.refuse\] wrong shape"):
            client.refuse({}).result(WAIT_S)
        with pytest.raises(RuntimeError, match="there is no such method"):
            client.nope({}).result(WAIT_S)
        with pytest.raises(RuntimeError, match="at most one argument"):
            client.add(1, 2).result(WAIT_S)
        assert bool(client.sample().result(WAIT_S)["was_none"])
    finally:
        client.close(WAIT_S)


def test_plain_clients_and_ours_share_a_batch(portal_link, portal):
    server = portal_link.make_server(name="actor")
    sizes = []

    def fn(items):
        sizes.append(len(items))
        return [rpc.Reply({"value": item.value}, {"batch": len(items)}) for item in items], None

    server.bind_batched({"act": lambda data: Item(int(data["value"]))}, fn, batch=2, max_wait_ms=1e6)
    server.start()
    plain, ours = portal.Client(port_of(portal_link), logging=False), portal_link.make_client()
    try:
        one, two = plain.act({"value": 1}), ours.call("act", {"value": 2})
        assert {key: int(value) for key, value in one.result(WAIT_S).items()} == {"value": 1}
        assert {key: int(value) for key, value in two.result(WAIT_S).items()} == {"value": 2}
        assert two.meta == {"batch": 2}
        assert sizes == [2]
    finally:
        plain.close(WAIT_S)


def test_our_client_calls_a_plain_server(portal_link, portal):
    server = portal.Server(port_of(portal_link), errors=False, host="127.0.0.1", logging=False)
    server.bind("add", lambda data: {"keys": list(data), "x": data["x"] + 1})
    server.bind("sample", lambda: {"batch": np.zeros((2, 3), np.float32)})
    server.bind("fail", lambda data: 1 // 0)
    server.start(block=False)
    try:
        client = portal_link.make_client(peer="replay")
        future = client.call("add", {"x": np.arange(3)}, meta={"lost": 1})
        result = future.result(WAIT_S)
        assert result["keys"] == ["x"]
        result["x"] += 1
        assert result["x"].tolist() == [2, 3, 4]
        assert future.meta == {} and client.is_plain
        assert client.call("sample").result(WAIT_S)["batch"].shape == (2, 3)
        with pytest.raises(RemoteError, match=r"replay\.fail failed: .*division"):
            client.call("fail", {}).result(WAIT_S)
        with pytest.raises(BadRequest, match="Unknown method nope"):
            client.call("nope", {}).result(WAIT_S)
    finally:
        server.close(WAIT_S)


def test_our_client_calls_a_plain_batch_server(portal_link, portal, monkeypatch):
    monkeypatch.setattr(portal.context, "serverkw", {"host": "127.0.0.1"})
    server = portal.BatchServer(port_of(portal_link), errors=False, process=False, logging=False)
    server.bind("act", lambda data: {"double": 2 * data["x"]}, batch=2)
    server.start(block=False)
    try:
        client = portal_link.make_client()
        futures = [client.call("act", {"x": np.float32(value)}) for value in range(4)]
        assert sorted(float(future.result(WAIT_S)["double"]) for future in futures) == [0, 2, 4, 6]
    finally:
        server.close(WAIT_S)


def test_a_message_may_have_thousands_of_values(portal_link):
    portal_link.serve(echo=lambda data: data)
    client = portal_link.make_client(peer="server")
    result = client.call("echo", {"many": list(range(3000)), "array": np.arange(3)}).result(WAIT_S)
    assert [int(value) for value in result["many"]] == list(range(3000)) and result["array"].tolist() == [0, 1, 2]
    assert client.connections == 1


def test_a_client_sleeps_while_there_is_nothing_to_do(portal_link):
    portal_link.serve(echo=lambda data: data)
    others = set(threading.enumerate())  # also of clients of other tests, which end in their own time
    client = portal_link.make_client(peer="server")
    for _ in range(20):  # more than one at a time, whose wake-ups may be left over
        futures = [client.call("echo", number) for number in range(10)]
        assert [future.result(WAIT_S) for future in futures] == list(range(10))
    (thread,) = [thread for thread in set(threading.enumerate()) - others if thread.name == "clientLoop"]
    before = count_wakes(thread)
    threading.Event().wait(1.0)
    wakes, ticks = (after - earlier for after, earlier in zip(count_wakes(thread), before, strict=True))
    assert wakes < 100 and ticks < 20, "of thousands, or of a second"
    assert client.call("echo", 1).result(WAIT_S) == 1


def count_wakes(thread: threading.Thread) -> tuple[int, int]:
    """How often a thread went to sleep, and its processor time in hundredths of a second."""
    task = Path(f"/proc/self/task/{thread.native_id}")
    lines = dict(line.split(":") for line in (task / "status").read_text().splitlines())
    user, system = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
    return int(lines["voluntary_ctxt_switches"]), int(user) + int(system)


def test_a_server_may_be_made_in_any_thread(portal_link):
    results = []

    def work():
        portal_link.serve(echo=lambda data: data)
        results.append(portal_link.make_client().call("echo", {"a": "b"}).result(WAIT_S))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(WAIT_S)
    assert results == [{"a": "b"}]


def test_beyond_loopback_a_token_is_needed(tmp_path, portal, caplog):
    key_file = tmp_path / "run.key"
    rpc.make_key(key_file)
    addr = rpc.resolve_addr("0.0.0.0:{auto}", "portal")
    server = rpc.make_server(addr, "server", transport="portal", key_file=key_file)
    server.bind("echo", lambda data: data)
    assert "does not encrypt" in caplog.text
    with server:
        with rpc.make_client(addr, "client", peer="server", transport="portal", key_file=key_file) as client:
            assert client.call("echo", "x").result(WAIT_S) == "x"
        plain = portal.Client(addr.replace("0.0.0.0", "127.0.0.1"), logging=False, autoconn=False)
        try:
            plain.connect(1)  # the server hangs up, perhaps before this is noticed to be a connection
            with pytest.raises((portal.Disconnected, TimeoutError)):
                plain.echo("x").result(0.3)
        finally:
            plain.close(WAIT_S)


def test_with_the_plain_handshake_programs_without_the_key_may_be_elsewhere(portal, caplog):
    addr = rpc.resolve_addr("0.0.0.0:{auto}", "portal")
    server = rpc.make_server(addr, "server", transport="portal", plain_handshake=True)
    server.bind("echo", lambda data: data)
    assert "lets in everybody who can reach it" in caplog.text
    reached = addr.replace("0.0.0.0", "127.0.0.1")
    with server:
        with rpc.make_client(addr, "client", peer="server", transport="portal", plain_handshake=True) as client:
            assert client.call("echo", "x").result(WAIT_S) == "x" and client.is_plain is False
        plain = portal.Client(reached, logging=False)
        try:
            assert plain.echo("x").result(WAIT_S) == "x"
        finally:
            plain.close(WAIT_S)


class Hello:
    """A greeting that counts its answers."""

    method = "hello"
    accepted = 0

    def present(self) -> dict:
        return {}

    def accept(self, answer: Any) -> None:
        self.accepted += 1

    def is_final(self, error: RpcError) -> bool:
        return False


def test_our_client_finds_out_who_serves_it_and_harms_nobody(portal_link, portal):
    """An unknown method or key would end a plain server."""
    greeting = Hello()
    client = portal_link.make_client(greeting=greeting)
    assert client.is_plain is None
    early = client.call("echo", {"x": 1}, meta={"lost": 1}, repeat=True)
    server = portal.Server(port_of(portal_link), host="127.0.0.1", logging=False)
    server.bind("echo", lambda data: {"keys": " ".join(data)})
    server.start(block=False)
    try:
        assert early.result(WAIT_S) == {"keys": "x"}
        assert client.is_plain is True and server.running and not greeting.accepted
    finally:
        server.close(WAIT_S)
    ours = portal_link.make_server()
    ours.bind("hello", lambda data: {})
    ours.bind("meta", lambda data, meta: meta, takes_meta=True)
    ours.start()
    assert client.call("meta", {"x": 1}, meta={"id": "a"}, repeat=True).result(WAIT_S) == {"id": "a"}
    assert client.is_plain is False and greeting.accepted == 1


def test_a_server_of_ours_that_is_taken_for_a_plain_one_hangs_up(portal_link):
    """As after a restart between the two handshakes; it is then offered the one among ourselves."""
    portal_link.serve(echo=lambda data: data)
    call = PortalEncoder(1).encode(0, "echo", {"x": 1}, None)
    message = b"".join(bytes(part) for part in call.pack(is_plain=True))
    with socket.create_connection(("127.0.0.1", port_of(portal_link)), WAIT_S) as raw:
        raw.sendall(b"portal_handshake" + len(message).to_bytes(8, "little") + message)
        assert raw.recv(1) == b""


def test_a_server_that_ends_cuts_plain_clients_off(portal_link, portal):
    """An error would end them, but after a lost connection they connect again."""
    server = portal_link.make_server()
    entered = threading.Event()

    def wait(_):
        entered.set()
        wait_until(lambda: server.is_closed)
        return {"is": "answered"}

    def end(_):
        raise RunOver("the run is complete")

    server.bind("wait", wait)
    server.bind("end", end)
    server.start()
    clients = [portal.Client(port_of(portal_link), logging=False, autoconn=False) for _ in range(2)]
    ours = portal_link.make_client()
    try:
        assert all(client.connect(WAIT_S) for client in clients)
        with pytest.raises(portal.Disconnected):
            clients[0].end({}).result(WAIT_S)
        assert clients[0].connect(WAIT_S)
        with pytest.raises(RunOver):
            ours.call("end", {}).result(WAIT_S)
        begun = clients[0].wait({})
        assert entered.wait(WAIT_S)
        waiting, own = clients[1].wait({}), ours.call("wait", {})
        wait_until(lambda: server.stats()["queue"] == 2)
        server.close()
        assert begun.result(WAIT_S) == {"is": "answered"}
        with pytest.raises(portal.Disconnected):
            waiting.result(WAIT_S)
        with pytest.raises(Disconnected):
            own.result(WAIT_S)
    finally:
        for client in clients:
            client.close(WAIT_S)


def test_what_is_nested_too_deeply_is_refused_on_both_sides():
    tree: dict = {}
    for _ in range(100_000):
        tree = {"a": tree}
    with pytest.raises(TypeError, match="nested too deeply"):
        data.prepare(tree)
    with pytest.raises(BadRequest, match="nested too deeply"):
        data.restore(tree)
    while tree:  # bit by bit: to free it at once would take as deep a stack
        tree = tree["a"]
