"""The key pair that all processes of a run share, in a file that only its user can read."""

import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

import zmq

from dreamfleet.base.files import replacing
from dreamfleet.errors import ConfigError


class KeyPair(NamedTuple):
    public: bytes
    secret: bytes

    def token(self) -> str:
        """A text that proves knowledge of the key, for engines without encryption."""
        return hashlib.sha256(b"dreamfleet token" + self.secret).hexdigest()


def make_key(path: str | Path) -> None:
    """Writes a fresh key pair with mode 600; a file that is already there is left alone."""
    public, secret = zmq.curve_keypair()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(public + b"\n" + secret + b"\n")


def store_key(path: str | Path, content: str) -> None:
    """Writes a key that was made elsewhere, with mode 600, in place of one that is already there and may be in use."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(Path(path)) as draft:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content)


def load_key(path: str | Path | None, addr: str) -> KeyPair:
    """Reads the key pair that the TCP address `addr` needs."""
    if not path:
        raise ConfigError("key_file", path, f"is not set, but {addr} is a TCP address", "set it, or use ipc:{auto}")
    try:
        mode = stat.S_IMODE(Path(path).stat().st_mode)
        lines = Path(path).read_bytes().split()
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise ConfigError("key_file", str(path), reason, "copy the key file of the run, or make one") from None
    if mode & 0o077:
        raise ConfigError("key_file", str(path), f"has mode {mode:o}, so others can read it", "run chmod 600 on it")
    if len(lines) != 2 or any(len(line) != 40 for line in lines):
        raise ConfigError("key_file", str(path), "does not hold a key pair", "copy the key file of the run again")
    pair = KeyPair(*lines)
    try:
        matches = zmq.curve_public(pair.secret) == pair.public
    except zmq.ZMQError:
        matches = False
    if not matches:
        raise ConfigError("key_file", str(path), "does not hold a matching key pair", "copy the key file again")
    return pair
