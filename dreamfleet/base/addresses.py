"""The grammar of addresses, as users write them; no sockets are opened here.

`ipc:/path` and `ipc:{auto}` are unix sockets; `host:port`, `[::1]:port`, `host:{auto}` and a bare `port` are TCP.
"""

import re
from dataclasses import dataclass
from typing import Self

from dreamfleet.errors import ConfigError

AUTO = "{auto}"
FORMS = "write ipc:{auto}, ipc:/path, localhost:{auto} or host:port"
MAX_PATH_BYTES = 107  # longest name that the kernel takes for a unix socket

_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]")  # a link-local one names its interface


@dataclass(frozen=True)
class Address:
    """One address: a path, or a host ("" where none is named, IPv6 without brackets) and a port (0 with `{auto}`)."""

    text: str
    path: str = ""
    host: str = ""
    port: int = 0
    is_auto: bool = False

    @classmethod
    def parse(cls, text: str | int, key: str = "addr") -> Self:
        """Reads an address; raises `ConfigError` with `key` for what is none."""
        text = str(text)
        return cls._parse_ipc(text, key) if is_ipc(text) else cls._parse_tcp(text, key)

    @property
    def is_ipc(self) -> bool:
        return is_ipc(self.text)

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.host

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it, as far as its text tells."""
        return self.is_ipc or is_loopback(self.host)

    @classmethod
    def _parse_ipc(cls, text: str, key: str) -> Self:
        path = text.removeprefix("ipc:")
        if path == AUTO:
            return cls(text, is_auto=True)
        if not path.startswith("/"):
            raise ConfigError(key, text, "is not an absolute path", FORMS)
        if AUTO in path:
            raise ConfigError(key, text, "has {auto} in an unknown place", "use ipc:{auto} or host:{auto}")
        if (size := len(path.encode())) > MAX_PATH_BYTES:
            reason = f"has a path of {size} bytes, more than the {MAX_PATH_BYTES} of a unix socket"
            raise ConfigError(key, text, reason, "use a shorter path or TMPDIR, or ipc:{auto}")
        return cls(text, path=path)

    @classmethod
    def _parse_tcp(cls, text: str, key: str) -> Self:
        host, _, port = text.rpartition(":")
        if (text.startswith(":") or host) and not _HOST.fullmatch(host):
            raise ConfigError(key, text, "is not an address", FORMS)
        if host and port == AUTO:
            return cls(text, host=host.strip("[]"), is_auto=True)
        if not port.isascii() or not port.isdigit():
            raise ConfigError(key, text, "is not an address", FORMS)
        if not 1 <= int(port) <= 65535:
            raise ConfigError(key, text, "has a port outside 1 to 65535", "choose one in that range, or host:{auto}")
        return cls(text, host=host.strip("[]"), port=int(port))


def is_ipc(text: str) -> bool:
    """Whether an address names a unix socket, which only processes of this machine can reach."""
    return text.startswith("ipc:")


def is_loopback(host: str) -> bool:
    """Whether a host ("" for none) is this machine, as seen from itself."""
    return host in ("", "localhost", "::1") or host.startswith("127.")


def join_host(host: str, port: int | str) -> str:
    """Host and port as one text, with the brackets that IPv6 needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
