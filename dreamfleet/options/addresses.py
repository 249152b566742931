"""Checks the addresses of a run: their form, and that those listened on here are free; part of `check_config`."""

import errno
import re
import socket
from collections.abc import Iterable
from pathlib import Path

from dreamfleet.errors import ConfigError
from dreamfleet.options.run import RunOptions

ROLES = ("actor", "replay", "logger")
TCP = re.compile(r"(?:(?P<host>[A-Za-z0-9_.-]+):)?(?P<port>[0-9]+)|[A-Za-z0-9_.-]+:\{auto\}")
FORMS = "write ipc:{auto}, ipc:/path, localhost:{auto} or host:port"
IPC_PATH_BYTES = 107  # longest name that the kernel takes for a unix socket


def check_addresses(run: RunOptions, listens: Iterable[str]) -> None:
    """Raises ConfigError for a malformed address, one given twice, or one of the roles in `listens` that is taken."""
    seen: dict[str, str] = {}
    addresses = {"actor": run.actor_addr, "replay": run.replay_addr, "logger": run.logger_addr}
    for role, addr in addresses.items():
        key = f"run.{role}_addr"
        _check_form(key, addr, run.transport)
        if addr in seen and "{auto}" not in addr:
            raise ConfigError(key, addr, f"is also {seen[addr]}", "give each role an address of its own")
        seen[addr] = key
    for role in listens:
        _check_free(f"run.{role}_addr", addresses[role])


def is_tcp(addr: str) -> bool:
    """Whether an address may be reached from other machines, and therefore needs a key."""
    return not addr.startswith("ipc:")


def _check_form(key: str, addr: str, transport: str) -> None:
    if addr.startswith("ipc:"):
        _check_ipc(key, addr, transport)
        return
    match = TCP.fullmatch(addr)
    if not match:
        raise ConfigError(key, addr, "is not an address", FORMS)
    if match["port"] and not 1 <= int(match["port"]) <= 65535:
        raise ConfigError(key, addr, "has a port outside 1 to 65535", "choose one in that range, or host:{auto}")


def _check_ipc(key: str, addr: str, transport: str) -> None:
    path = addr.removeprefix("ipc:")
    if path == "{auto}":
        return
    if transport == "portal":
        raise ConfigError(key, addr, "is a unix socket, which run.transport='portal' lacks", "write localhost:{auto}")
    if not path.startswith("/"):
        raise ConfigError(key, addr, "is not an absolute path", FORMS)
    if len(path.encode()) > IPC_PATH_BYTES:
        reason = f"has a path of {len(path.encode())} bytes, more than the {IPC_PATH_BYTES} of a unix socket"
        raise ConfigError(key, addr, reason, "use a shorter path, or ipc:{auto}")
    if not Path(path).parent.is_dir():
        reason = f"is in the directory {Path(path).parent}, which does not exist"
        raise ConfigError(key, addr, reason, "create it, or use ipc:{auto}")


def _check_free(key: str, addr: str) -> None:
    match = TCP.fullmatch(addr)
    if not match or not match["port"]:
        return
    host = match["host"] or "localhost"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As the servers do: the closed connections of an earlier run are no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(match["port"])))
    except socket.gaierror:
        raise ConfigError(key, addr, "names a host that is not known", "check its name, or use localhost") from None
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "has a port that is already in use",
            errno.EADDRNOTAVAIL: "names a host that is not this machine",
        }
        reason = reasons.get(error.errno or 0, f"cannot be listened on ({error.strerror})")
        raise ConfigError(key, addr, reason, f"choose another, or {host}:{{auto}} for a free port") from None
