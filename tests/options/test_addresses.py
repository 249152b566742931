"""Addresses of a run: form, uniqueness, and whether they are free."""

import socket

import pytest

from dreamfleet.errors import ConfigError
from dreamfleet.options import check_options, check_role, load_options
from dreamfleet.options.addresses import is_tcp


@pytest.fixture
def load(tmp_path):
    return lambda **addresses: load_options({"logdir": str(tmp_path), "run": addresses})


@pytest.fixture
def taken_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def refusal(options, check=check_options) -> str:
    with pytest.raises(ConfigError) as caught:
        check(options)
    return str(caught.value)


@pytest.mark.parametrize(
    "addr", ["ipc:{auto}", "ipc:/tmp/a", "localhost:{auto}", "127.0.0.1:{auto}", "0.0.0.0:{auto}", "[::1]:{auto}"]
)
def test_good_forms(addr, load):
    check_options(load(actor_addr=addr))


@pytest.mark.parametrize(
    ("addr", "reason"),
    [
        ("", "is not an address; write ipc:{auto}"),
        ("localhost", "is not an address"),
        ("localhost:", "is not an address"),
        ("localhost:http", "is not an address"),
        ("tcp://localhost:5000", "is not an address"),
        ("a b:5000", "is not an address"),
        ("*:5000", "is not an address"),
        ("localhost:{port}", "is not an address"),
        ("localhost:0", "port outside 1 to 65535"),
        ("70000", "port outside 1 to 65535"),
        ("ipc:relative", "not an absolute path"),
        ("ipc:", "not an absolute path"),
        ("ipc:/tmp/" + "x" * 103, "path of 108 bytes, more than the 107"),
        ("ipc:/no/such/place", "directory /no/such, which does not exist"),
    ],
)
@pytest.mark.parametrize("role", ["actor", "replay", "logger"])
def test_bad_forms(role, addr, reason, load):
    message = refusal(load(**{f"{role}_addr": addr}))
    assert message.startswith(f"run.{role}_addr={addr!r} ") and reason in message


@pytest.mark.parametrize("transport", ["zmq", "portal"])
def test_only_auto_has_unix_sockets(transport, load):
    message = refusal(load(transport=transport, actor_addr="ipc:/tmp/a"))
    assert f"not supported by run.transport='{transport}'; write localhost:{{auto}}, or use run" in message
    check_options(load(transport=transport, actor_addr="ipc:{auto}"))


def test_ipv6_with_a_port(load):
    with socket.socket(socket.AF_INET6) as server:
        try:
            server.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        server.listen()
        addr = f"[::1]:{server.getsockname()[1]}"
        assert "is already in use; choose another, or [::1]:{auto}" in refusal(load(actor_addr=addr))
    check_options(load(actor_addr=addr))


def test_same_address_twice(load):
    message = refusal(load(actor_addr="ipc:/tmp/a", logger_addr="ipc:/tmp/a"))
    assert message.startswith("run.logger_addr='ipc:/tmp/a' is also run.actor_addr; give each")


@pytest.mark.parametrize("form", ["localhost:{}", "127.0.0.1:{}", "{}"])
def test_port_in_use(form, load, taken_port):
    addr = form.format(taken_port)
    message = refusal(load(logger_addr=addr))
    assert message.startswith(f"run.logger_addr='{addr}' has a port that is already in use; choose another, or ")


def test_port_is_free_after_the_check(load, taken_port):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        check_options(load(actor_addr=f"localhost:{port}"))


def test_a_second_replica_0_is_not_told_to_take_any_port(load, taken_port):
    told = refusal(load(replicas=2, gang=f"localhost:{taken_port}"))
    assert "already in use; is replica 0 running already?" in told and "{auto}" not in told


def test_ports_of_roles_elsewhere_do_not_matter(load, taken_port):
    addr = f"localhost:{taken_port}"
    check_options(load(replay_addr=addr, remote_replay=True))
    check_role(load(actor_addr=addr), "envs", ())
    check_options(load(actor_addr=addr, mode="serial"))
    told = refusal(load(replay_addr=addr), lambda options: check_role(options, "replay", ("replay",)))
    assert "in use; has a replay joined from here already?" in told and "{auto}" not in told


def test_host_of_another_machine(load):
    # 192.0.2.0/24 is reserved for documentation: no machine has it, and binding sends nothing.
    assert "names a host that is not this machine" in refusal(load(actor_addr="192.0.2.1:5000"))


def test_only_unix_sockets_do_without_a_key():
    assert is_tcp("localhost:5000") and is_tcp("5000") and not is_tcp("ipc:/tmp/a")
