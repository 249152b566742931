"""The grammar of addresses: what is one, what it says, and how others are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamfleet.base.addresses import MAX_PATH_BYTES, Address, is_ipc, is_loopback, join_host
from dreamfleet.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "path", "host", "port", "is_auto"),
    [
        ("ipc:{auto}", "", "", 0, True),
        ("ipc:/run/x", "/run/x", "", 0, False),
        ("host:1234", "", "host", 1234, False),
        ("host-1.lab_net:{auto}", "", "host-1.lab_net", 0, True),
        ("[::1]:65535", "", "::1", 65535, False),
        ("[fe80::1]:{auto}", "", "fe80::1", 0, True),
        ("1", "", "", 1, False),
        (1234, "", "", 1234, False),
    ],
)
def test_every_form(text, path, host, port, is_auto):
    addr = Address.parse(text)
    assert (addr.path, addr.host, addr.port, addr.is_auto) == (path, host, port, is_auto)
    assert addr.text == str(text)
    assert addr.is_ipc == str(text).startswith("ipc:")
    assert addr.is_ipv6 == (":" in host)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *[(text, "is not an address") for text in ("", "host", "host:", "host:http", ":5000", "tcp://h:5", "a b:5")],
        *[
            (text, "is not an address")
            for text in ("*:5", "h:{port}", "{auto}", ":{auto}", "::1:5", "[::1]", "h:-1", "h:²")
        ],
        *[(text, "port outside 1 to 65535") for text in ("host:0", "70000", "[::1]:65536")],
        *[(text, "is not an absolute path") for text in ("ipc:", "ipc:relative", "ipc:x{auto}")],
        ("ipc:/tmp/{auto}", "{auto} in an unknown place"),
        ("ipc:/" + MAX_PATH_BYTES * "x", "path of 108 bytes, more than the 107"),
        ("ipc:/" + 54 * "ä", "path of 109 bytes, more than the 107"),
    ],
)
def test_what_is_none_is_refused_by_its_key(text, reason):
    with pytest.raises(ConfigError) as caught:
        Address.parse(text, "run.actor_addr")
    assert (caught.value.key, caught.value.value) == ("run.actor_addr", text)
    assert reason in caught.value.reason


def test_the_longest_path_is_accepted():
    path = "/" + (MAX_PATH_BYTES - 1) * "x"
    assert Address.parse(f"ipc:{path}").path == path


@given(st.text())
def test_any_text_is_an_address_or_a_config_error(text):
    try:
        addr = Address.parse(text)
    except ConfigError:
        return
    assert addr.is_ipc or addr.is_auto or 1 <= addr.port <= 65535


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ipc:/x", True), ("5", True), ("localhost:5", True), ("127.0.0.2:5", True), ("[::1]:5", True)]
    + [("0.0.0.0:5", False), ("host:{auto}", False), ("[::]:5", False), ("10.127.0.1:5", False)],
)
def test_what_only_this_machine_reaches(text, expected):
    assert Address.parse(text).is_loopback == expected


def test_parts():
    assert is_ipc("ipc:/x") and not is_ipc("localhost:5")
    assert is_loopback("") and not is_loopback("192.0.2.1")
    assert join_host("::1", 5) == "[::1]:5" and join_host("host", "{auto}") == "host:{auto}"
