"""Addresses as users write them (`ipc:/path`, `host:port`, `port`), and what each engine makes of them."""

import contextlib
import errno
import fcntl
import shutil
import socket
import tempfile
from pathlib import Path
from typing import IO, Any

from dreamfleet.errors import ConfigError

_AUTO = "{auto}"
_PREFIX = "dreamfleet-"
_SOCKET, _LOCK = "s", "lock"  # in a directory of ours; the lock is held by the process that made it
_IPC_LIMIT = 107  # bytes that a unix socket address holds


def resolve_addr(addr: str | int, transport: str) -> str:
    """Replaces `{auto}` by a socket in a fresh directory that only this user can enter, or by a free port."""
    addr = str(addr)
    if _AUTO not in addr:
        return addr
    if addr == f"ipc:{_AUTO}" and transport in ("auto", "zmq"):
        return check_ipc(f"ipc:{_make_directory()}/{_SOCKET}")
    if addr == f"ipc:{_AUTO}":
        addr = f"localhost:{_AUTO}"
    host, _, port = addr.rpartition(":")
    if addr.startswith("ipc:") or port != _AUTO:
        raise ConfigError("addr", addr, "has {auto} in an unknown place", "use ipc:{auto} or host:{auto}")
    return f"{host or 'localhost'}:{_free_port(bind_host(host))}"


def remove_addr(addr: str) -> None:
    """Removes the directory that `resolve_addr` made for an `ipc:{auto}` address; leaves any other address alone."""
    if not is_ipc(addr):
        return
    directory = Path(addr.removeprefix("ipc:")).parent
    if directory.name.startswith(_PREFIX) and directory.parent == Path(tempfile.gettempdir()):
        shutil.rmtree(directory, ignore_errors=True)
        if lock := _locks.pop(directory, None):
            lock.close()


def is_ipc(addr: str) -> bool:
    return addr.startswith("ipc:")


def check_ipc(addr: str) -> str:
    """Returns an `ipc:` address unchanged if the operating system can hold it."""
    path = addr.removeprefix("ipc:")
    if not path.startswith("/"):
        raise ConfigError("addr", addr, "is not an absolute path", "use ipc:/path, or ipc:{auto} for a private one")
    if len(path.encode()) > _IPC_LIMIT:
        raise ConfigError(
            "addr", addr, f"is longer than {_IPC_LIMIT} bytes", "choose a shorter path, or a shorter TMPDIR"
        )
    return addr


def split_host(addr: str) -> tuple[str, int]:
    """Host ("" where none is named) and port of a TCP address."""
    host, _, port = addr.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigError("addr", addr, "has no port", "use ipc:/path, host:port, or a port")
    return host, int(port)


def bind_host(host: str) -> str:
    """The interface to listen on: loopback unless another one is named."""
    host = connect_host(host)
    try:
        return socket.gethostbyname(host) if host[0] != "[" else host
    except OSError:
        raise ConfigError(
            "addr", host, "is not a host that can be listened on", "use an address of this host"
        ) from None


def connect_host(host: str) -> str:
    return "127.0.0.1" if host in ("", "localhost") else host


def is_loopback(host: str) -> bool:
    return host in ("", "localhost", "[::1]") or host.startswith("127.")


def remove_stale_socket(addr: str) -> None:
    """Removes the file of a listener that is gone; raises `ConfigError` if somebody still listens there."""
    path = Path(addr.removeprefix("ipc:"))
    if not path.exists():
        return
    if not path.is_socket():
        raise ConfigError("addr", addr, "is a file that is not a socket", "choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        else:
            raise in_use(addr)


def cannot_listen(addr: str, error: Any) -> ConfigError:
    """What to raise where an address cannot be bound, for an error with an `errno`."""
    if error.errno == errno.EADDRINUSE:
        return in_use(addr)
    return ConfigError("addr", addr, f"cannot be listened on ({error})", "use an address of this host")


def in_use(addr: str) -> ConfigError:
    return ConfigError("addr", addr, "is in use", "stop the other process, or use {auto} for a free address")


_locks: dict[Path, IO] = {}


def _make_directory() -> Path:
    """A new directory that others of our kind remove once this process is gone, as this does for them."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        if lock.parent not in _locks:
            _remove_abandoned(lock)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    draft = directory / f".{_LOCK}"
    _locks[directory] = draft.open("w")
    fcntl.flock(_locks[directory], fcntl.LOCK_EX)
    draft.rename(directory / _LOCK)  # others see it only when it is held
    return directory


def _remove_abandoned(lock: Path) -> None:
    with contextlib.suppress(OSError), lock.open("r+") as file:  # that of another user cannot be opened
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if {path.name for path in lock.parent.iterdir()} <= {_SOCKET, _LOCK}:  # else it is somebody's own
            shutil.rmtree(lock.parent, ignore_errors=True)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host.strip("[]"), 0))
        return probe.getsockname()[1]
