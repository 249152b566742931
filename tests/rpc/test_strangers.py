"""What those who do not have the key of a run can cost a ZeroMQ server: next to nothing, and one line each."""

import contextlib
import re
import select
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dreamfleet import rpc
from dreamfleet.rpc.zmq.gatekeeper import MAX_UNPROVEN
from tests.rpc.links import WAIT_S, make_link, wait_until

SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
GREETING = SIGNATURE + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)  # ZMTP 3.0, as a client
COMMAND, LONG_COMMAND = b"\x04", b"\x06"  # what a frame begins with, before its size
GIGABYTE = 1 << 30
MAX_GROWTH = 32 << 20  # bytes, of a server that is in use


@pytest.fixture
def link(tmp_path):
    with contextlib.ExitStack() as stack:
        yield make_link("zmq", tmp_path, stack)


def connect(link, address="127.0.0.1"):
    """A connection from any address of this machine."""
    port = int(link.addr.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), WAIT_S, source_address=(address, 0))


def has_ended(raw):
    """Whether the server has closed a connection that reads nothing else."""
    while select.select([raw], [], [], 0)[0]:
        try:
            if not raw.recv(4096):
                return True
        except ConnectionError:
            return True
    return False


@pytest.mark.distributed
@pytest.mark.parametrize("count", [3, 50])
def test_large_frames_of_strangers_take_no_memory_and_stop_nobody(link, count):
    process = start_server(link)
    client = link.make_client()
    assert client.call("pid").result(WAIT_S) == process.pid
    before = peak_memory(process.pid)
    is_over = threading.Event()
    strangers = [threading.Thread(target=stream, args=(link, is_over)) for _ in range(count)]
    for stranger in strangers:
        stranger.start()
    for _ in range(50):
        assert client.call("pid").result(WAIT_S) == process.pid
    is_over.set()
    for stranger in strangers:
        stranger.join(WAIT_S)
    assert not any(stranger.is_alive() for stranger in strangers)
    assert client.connections == 1
    assert peak_memory(process.pid) - before < MAX_GROWTH


def start_server(link):
    script = str(Path(__file__).parent / "server_process.py")
    args = [sys.executable, script, link.addr, link.transport, str(link.key_file)]
    process = link.stack.enter_context(subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    link.stack.callback(process.kill)
    assert process.stdout.readline() == "ready\n"
    return process


def stream(link, is_over):
    """Announces a command of a gigabyte where the handshake is due, and sends what it may, again and again."""
    chunk = bytes(1 << 20)
    while not is_over.is_set():
        with contextlib.suppress(ConnectionError), connect(link) as raw:
            raw.sendall(GREETING + LONG_COMMAND + struct.pack(">Q", GIGABYTE))
            for _ in range(GIGABYTE // len(chunk)):
                raw.sendall(chunk)


def peak_memory(pid):
    """The most resident memory that a process has had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


def test_one_address_has_room_for_few_connections_that_prove_nothing(link, caplog):
    link.serve(echo=lambda data: data)
    for _ in range(MAX_UNPROVEN + 1):
        link.stack.enter_context(connect(link, "127.0.0.2"))
    wait_until(lambda: "server: refused a connection from 127.0.0.2: 128 from there have not shown" in caplog.text)
    assert link.make_client().call("echo", 1).result(WAIT_S) == 1, "other addresses are not concerned"


def test_strangers_are_logged_once_by_address(link, caplog):
    link.serve(echo=lambda data: data)
    for _ in range(3):
        strangers = [connect(link, address) for address in ("127.0.0.2", "127.0.0.3")]
        greet(link)
        for raw in strangers:
            link.stack.callback(raw.close)
            raw.sendall(GREETING + COMMAND + bytes([200]) + b"\x05HELLO" + bytes(194))
        wait_until(lambda strangers=strangers: all(map(has_ended, strangers)))
        greet(link)
    lines = [record.message for record in caplog.records if "has not shown the key" in record.message]
    assert sorted(lines) == [
        f"server: refused {address}, which has not shown the key of this run" for address in ("127.0.0.2", "127.0.0.3")
    ]


def greet(link):
    """Lets an honest client in, before which the server takes note of who has come and gone."""
    client = link.make_client()
    assert client.call("echo", 1).result(WAIT_S) == 1
    client.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_any_number_of_clients_with_the_key_may_come_and_go(link, host, caplog):
    try:
        link.addr = rpc.resolve_addr(f"{host}:{{auto}}", "zmq")
    except OSError:
        pytest.skip("this machine has no IPv6")
    link.serve(echo=lambda data: data)
    for _ in range(MAX_UNPROVEN + 10):
        greet(link)
    assert "refused" not in caplog.text
