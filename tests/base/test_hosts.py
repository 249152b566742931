"""What is said of hosts where nobody will ever answer."""

import socket

import pytest

from dreamfleet import rpc
from dreamfleet.base.addresses import Address
from dreamfleet.base.hosts import explain_host, find_hosts, is_ipv6_only

V4, V6 = socket.AF_INET, socket.AF_INET6
NAMES = {
    "far": [(V4, "192.0.2.1")],
    "both": [(V6, "2001:db8::1"), (V4, "192.0.2.1")],
    "six": [(V6, "2001:db8::1")],
    "self": [(V4, "127.0.1.1")],
}


@pytest.fixture(autouse=True)
def names(monkeypatch):
    def find(host, port, **_):
        if host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(family, socket.SOCK_STREAM, 6, "", (ip, port)) for family, ip in NAMES[host]]

    monkeypatch.setattr(socket, "getaddrinfo", find)


def test_ipv4_comes_first():
    assert find_hosts("both") == ["192.0.2.1", "2001:db8::1"] and find_hosts("nobody") == []
    assert [name for name in NAMES if is_ipv6_only(name)] == ["six"]


@pytest.mark.parametrize(
    "text", ["far:1", "both:1", "six:1", "localhost:1", "127.0.0.1:1", "[::1]:1", "1", "ipc:/tmp/a"]
)
def test_nothing_is_said_of_what_can_be_meant(text):
    assert explain_host(Address.parse(text)) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nobody:1", "nobody:1 names a host that is not known here"),
        ("self:1", "self:1 is 127.0.1.1 here, which is this"),
    ],
)
@pytest.mark.parametrize("transport", ["zmq", "portal"])
def test_a_client_of_such_a_host_says_so_and_tries_on(text, reason, transport, tmp_path, caplog):
    rpc.make_key(tmp_path / "key")
    with rpc.make_client(text, "env0", peer="actor", transport=transport, key_file=tmp_path / "key") as client:
        assert not client.connected
    assert f"env0: actor: {reason}" in caplog.text
