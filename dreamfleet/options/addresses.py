"""Checks the addresses of a run: their form, and that those listened on here are free; part of `check_options`."""

import errno
import socket
from collections.abc import Iterable
from pathlib import Path

from dreamfleet.base.addresses import Address, is_ipc, join_host
from dreamfleet.errors import ConfigError
from dreamfleet.options.run import SERVERS, RunOptions


def check_addresses(run: RunOptions, listens: Iterable[str], remedy: str = "") -> None:
    """Raises ConfigError for a malformed address, one given twice, or one of the roles in `listens` that is taken.

    `remedy` is what to do about the last, unless any other address would do.
    """
    seen: dict[str, str] = {}
    for role in SERVERS:
        key, addr = f"run.{role}_addr", run.address(role)
        _check_form(key, addr, run.transport)
        if addr in seen and "{auto}" not in addr:
            raise ConfigError(key, addr, f"is also {seen[addr]}", "give each role an address of its own")
        seen[addr] = key
    if run.gang and run.replica == 0 and "actor" in listens:
        _check_free("run.gang", run.gang, "is replica 0 running already? Otherwise choose another, for all replicas")
    for role in listens:
        _check_free(f"run.{role}_addr", run.address(role), remedy)


def is_tcp(addr: str) -> bool:
    """Whether an address may be reached from other machines, and therefore needs a key."""
    return not is_ipc(addr)


def _check_form(key: str, text: str, transport: str) -> None:
    addr = Address.parse(text, key)
    if not addr.is_ipc or addr.is_auto:
        return
    if transport != "auto":
        reason = f"is a unix socket, not supported by run.transport={transport!r}"
        raise ConfigError(key, text, reason, "write localhost:{auto}, or use run.transport=auto")
    if not Path(addr.path).parent.is_dir():
        reason = f"is in the directory {Path(addr.path).parent}, which does not exist"
        raise ConfigError(key, text, reason, "create it, or use ipc:{auto}")


def _check_free(key: str, text: str, remedy: str = "") -> None:
    addr = Address.parse(text, key)
    if addr.is_ipc or addr.is_auto:
        return
    host = addr.host or "localhost"
    try:
        infos = socket.getaddrinfo(host, addr.port, type=socket.SOCK_STREAM)
        family, *_, place = min(infos, key=lambda info: info[0] != socket.AF_INET)  # IPv4 first, as the servers do
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Also as they do: the closed connections of an earlier run are no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except socket.gaierror:
        raise ConfigError(key, text, "names a host that is not known", "check its name, or use localhost") from None
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "has a port that is already in use",
            errno.EADDRNOTAVAIL: "names a host that is not this machine",
        }
        reason = reasons.get(error.errno or 0, f"cannot be listened on ({error.strerror})")
        remedy = remedy or f"choose another, or {join_host(host, '{auto}')} for a free port"
        raise ConfigError(key, text, reason, remedy) from None
