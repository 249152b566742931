"""Addresses are resolved to something private and free, and keys are kept from others."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dreamfleet import rpc
from dreamfleet.errors import ConfigError
from dreamfleet.rpc.keys import load_key


def test_automatic_ipc_addresses_are_private_and_differ():
    one, other = (rpc.resolve_addr("ipc:{auto}", "auto") for _ in range(2))
    assert one != other
    directory = Path(one.removeprefix("ipc:")).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert directory.parent == Path(tempfile.gettempdir())
    rpc.remove_addr(one)
    rpc.remove_addr(other)
    assert not directory.exists()


@pytest.mark.parametrize("mask", [0o000, 0o777])
def test_only_this_user_can_open_a_socket_whatever_the_umask(mask, tmp_path):
    before = os.umask(mask)
    try:
        for addr in (rpc.resolve_addr("ipc:{auto}", "auto"), f"ipc:{tmp_path}/s"):
            with rpc.make_server(addr, "server"):
                path = Path(addr.removeprefix("ipc:"))
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
            rpc.remove_addr(addr)
    finally:
        os.umask(before)


def test_directories_of_processes_that_were_killed_are_removed(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    script = "import os, dreamfleet.rpc as rpc; print(rpc.resolve_addr('ipc:{auto}', 'auto'), flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as process:
        assert process.stdout
        other = Path(process.stdout.readline().strip().removeprefix("ipc:")).parent
        own = [rpc.resolve_addr("ipc:{auto}", "auto") for _ in range(2)]
        assert other.parent == tmp_path and len(list(tmp_path.iterdir())) == 3, "all of them are in use"
        process.kill()
    assert other.exists()
    users = tmp_path / "dreamfleet-notes"
    users.mkdir()
    for name in ("lock", "diary"):
        (users / name).touch()
    own.append(rpc.resolve_addr("ipc:{auto}", "auto"))
    assert not other.exists() and len(list(tmp_path.iterdir())) == 4
    for addr in own:
        rpc.remove_addr(addr)
    assert list(tmp_path.iterdir()) == [users] and len(list(users.iterdir())) == 2


@pytest.mark.parametrize(
    ("addr", "transport"),
    [
        ("localhost:{auto}", "auto"),
        ("localhost:{auto}", "zmq"),
        ("ipc:{auto}", "zmq"),
        ("localhost:{auto}", "portal"),
        ("ipc:{auto}", "portal"),
    ],
)
def test_automatic_ports_are_free(addr, transport):
    host, _, port = rpc.resolve_addr(addr, transport).rpartition(":")
    assert host == "localhost"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", int(port)))


def test_other_addresses_stay_as_they_are():
    assert rpc.resolve_addr("host:1234", "zmq") == "host:1234"
    assert rpc.resolve_addr(1234, "zmq") == "1234"
    assert rpc.resolve_addr("ipc:/run/x", "auto") == "ipc:/run/x"


def test_only_own_directories_are_removed(tmp_path):
    (tmp_path / "s").touch()
    rpc.remove_addr(f"ipc:{tmp_path}/s")
    rpc.remove_addr("localhost:1234")
    assert (tmp_path / "s").exists()


@pytest.mark.parametrize("addr", ["host", "host:port", "host:0", "host:70000", "ipc:relative", f"ipc:/{'x' * 200}"])
def test_impossible_addresses_are_refused(addr):
    with pytest.raises(ConfigError, match="addr="):
        rpc.make_server(addr, "server")


def test_auto_in_an_unknown_place_is_refused():
    with pytest.raises(ConfigError, match="addr="):
        rpc.resolve_addr("ipc:/tmp/{auto}", "auto")


WAYS = [
    lambda addr, transport: rpc.resolve_addr(addr, transport),
    lambda addr, transport: rpc.make_server(addr, "server", transport=transport),
    lambda addr, transport: rpc.make_client(addr, "client", peer="server", transport=transport),
]


@pytest.mark.parametrize("use", WAYS)
def test_unknown_transports_are_refused_with_those_that_exist(use):
    with pytest.raises(ConfigError, match="transport='carrier pigeon' is not known; use auto, zmq or portal"):
        use("ipc:/tmp/x", "carrier pigeon")


@pytest.mark.parametrize("use", WAYS)
@pytest.mark.parametrize("transport", ["zmq", "portal"])
def test_only_auto_has_unix_sockets(use, transport):
    remedy = r"use localhost:\{auto\}, or transport auto"
    with pytest.raises(
        ConfigError, match=f"addr='ipc:/tmp/x' is a unix socket, which transport '{transport}'.*{remedy}"
    ):
        use("ipc:/tmp/x", transport)


@pytest.mark.parametrize("transport", ["auto", "zmq", "portal"])
def test_ipv6_addresses(transport, tmp_path):
    try:
        addr = rpc.resolve_addr("[::1]:{auto}", transport)
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert addr.startswith("[::1]:")
    rpc.make_key(tmp_path / "run.key")
    options = {"transport": transport, "key_file": tmp_path / "run.key"}
    server = rpc.make_server(addr, "server", **options)
    server.bind("echo", lambda data: data)
    with server, rpc.make_client(addr, "client", peer="server", **options) as client:
        assert client.call("echo", {"a": "b"}).result(20) == {"a": "b"}


def test_a_key_is_made_once_and_only_for_its_user(tmp_path):
    path = tmp_path / "run.key"
    rpc.make_key(path)
    key = load_key(path, "host:1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    rpc.make_key(path)
    assert load_key(path, "host:1") == key


def test_unsafe_or_broken_keys_are_refused(tmp_path):
    path = tmp_path / "run.key"
    with pytest.raises(ConfigError, match="key_file="):
        load_key(path, "host:1")
    rpc.make_key(path)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="others can read it; run chmod 600"):
        load_key(path, "host:1")
    path.chmod(0o600)
    lines = path.read_bytes().split()
    path.write_bytes(b"\n".join([lines[1], lines[1]]))
    with pytest.raises(ConfigError, match="does not hold"):
        load_key(path, "host:1")


def test_tcp_needs_a_key():
    with pytest.raises(ConfigError, match="key_file="):
        rpc.make_server("localhost:1234", "server")
    with pytest.raises(ConfigError, match="key_file="):
        rpc.make_client("localhost:1234", "client", peer="server")
    with pytest.raises(ConfigError, match="key_file="):
        rpc.make_server("0.0.0.0:1234", "server", transport="portal")


def test_an_address_in_use_is_refused(threaded_link):
    threaded_link.serve(echo=lambda data: data)
    with pytest.raises(ConfigError, match=r"addr=.* is in use"):
        threaded_link.serve(echo=lambda data: data)
    assert threaded_link.make_client().call("echo", {"a": b"1"}).result(20) == {"a": b"1"}


def test_the_socket_of_a_dead_server_is_replaced(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    server = rpc.make_server(f"ipc:{path}", "server")
    server.bind("echo", lambda data: data)
    with server, rpc.make_client(f"ipc:{path}", "client", peer="server") as client:
        assert client.call("echo", 1).result(20) == 1


def test_a_file_that_is_no_socket_is_not_replaced(tmp_path):
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="not a socket"), rpc.make_server(f"ipc:{path}", "server"):
        pass
    assert path.read_text() == "precious"
