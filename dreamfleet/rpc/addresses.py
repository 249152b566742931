"""What is made of addresses: the engine that serves one, `{auto}` filled in, and private directories for sockets."""

import contextlib
import errno
import shutil
import socket
import tempfile
from pathlib import Path
from typing import IO, Any

from dreamfleet.base.addresses import Address, is_ipc, join_host
from dreamfleet.base.hosts import find_hosts
from dreamfleet.errors import ConfigError

_PREFIX = "dreamfleet-"
_SOCKET, _LOCK = "s", "lock"  # in a directory of ours; the lock is held by the process that made it


def choose_engine(addr: Address, transport: str) -> str:
    """The engine for an address: local, zmq or portal; with `auto`, unix sockets are local and the rest is zmq."""
    if transport not in ("auto", "zmq", "portal"):
        raise ConfigError("transport", transport, "is not known", "use auto, zmq or portal")
    if transport == "auto":
        return "local" if addr.is_ipc else "zmq"
    if addr.is_ipc and not addr.is_auto:
        reason = f"is a unix socket, which transport {transport!r} lacks"
        raise ConfigError("addr", addr.text, reason, "use localhost:{auto}, or transport auto")
    return transport


def resolve_addr(addr: str | int, transport: str) -> str:
    """Replaces `{auto}` by a socket in a fresh directory that only this user can enter, or by a free port."""
    parsed = Address.parse(addr)
    engine = choose_engine(parsed, transport)
    if not parsed.is_auto:
        return parsed.text
    if engine == "local":
        return Address.parse(f"ipc:{_make_directory()}/{_SOCKET}").text
    host = parsed.host or "localhost"  # also in the place of `ipc:{auto}`
    return join_host(host, _free_port(listen_host(host)))


def remove_addr(addr: str) -> None:
    """Removes the directory that `resolve_addr` made for an `ipc:{auto}` address; leaves any other address alone."""
    if not is_ipc(addr):
        return
    directory = Path(addr.removeprefix("ipc:")).parent
    if directory.name.startswith(_PREFIX) and directory.parent == Path(tempfile.gettempdir()):
        shutil.rmtree(directory, ignore_errors=True)
        if lock := _locks.pop(directory, None):
            lock.close()


def find_obstacle(addr: str, timeout_s: float = 2.0) -> str:
    """Why a connection to an address cannot be made; empty if something listens there."""
    parsed = Address.parse(addr)
    if parsed.is_ipc:
        return "" if Path(parsed.path).exists() else "there is no such socket"
    try:
        socket.create_connection((connect_host(parsed.host), parsed.port), timeout_s).close()
    except OSError as error:
        return (error.strerror or str(error) or type(error).__name__).lower()
    return ""


def listen_host(host: str) -> str:
    """The interface to listen on: loopback unless another one is named."""
    host = connect_host(host)
    if ":" in host:
        return host
    if not (found := find_hosts(host)):
        reason = "is not a host that can be listened on"
        raise ConfigError("addr", host, reason, "use an address of this host")
    return found[0]


def connect_host(host: str) -> str:
    return "127.0.0.1" if host in ("", "localhost") else host


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
            raise _in_use(addr)


def cannot_listen(addr: str, error: Any) -> ConfigError:
    """What to raise where an address cannot be bound, for an error with an `errno`."""
    if error.errno == errno.EADDRINUSE:
        return _in_use(addr)
    return ConfigError("addr", addr, f"cannot be listened on ({error})", "use an address of this host")


def _in_use(addr: str) -> ConfigError:
    return ConfigError("addr", addr, "is in use", "stop the other process, or use {auto} for a free address")


_locks: dict[Path, IO] = {}


def _make_directory() -> Path:
    """A new directory that others of our kind remove once this process is gone, as this does for them."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        if lock.parent not in _locks:
            _remove_abandoned(lock)
    import fcntl  # not on Windows, where there are no such sockets either

    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    directory.chmod(0o700)  # whatever the umask
    draft = directory / f".{_LOCK}"
    _locks[directory] = draft.open("w")
    fcntl.flock(_locks[directory], fcntl.LOCK_EX)
    draft.rename(directory / _LOCK)  # others see it only when it is held
    return directory


def _remove_abandoned(lock: Path) -> None:
    import fcntl

    with contextlib.suppress(OSError), lock.open("r+") as file:  # that of another user cannot be opened
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if {path.name for path in lock.parent.iterdir()} <= {_SOCKET, _LOCK}:  # else it is somebody's own
            shutil.rmtree(lock.parent, ignore_errors=True)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]
