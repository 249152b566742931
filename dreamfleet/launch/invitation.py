"""What a role on another machine needs to join a run, in one file or one line: addresses, key, versions and options.

Whoever has it can join: the file is for its user alone, and neither is ever a word of a command.
"""

import base64
import binascii
import dataclasses
import json
import os
import socket
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dreamfleet
from dreamfleet.base.addresses import AUTO, Address, join_host
from dreamfleet.base.files import replacing
from dreamfleet.errors import ConfigError
from dreamfleet.options import SERVERS, Options, RoleOptions, RunOptions, flatten, key_file, load_options

FILE = "join.json"
ANY = ("", "0.0.0.0", "::")
MOST_BYTES = 1 << 20
UNKNOWN = f"ipc:{AUTO}"  # of a server that nobody here reaches
# What another machine decides for itself.
LOCAL = ("logdir", "run.envs", "run.eval_envs", "run.key_file", "run.from_checkpoint", "replay.directory")
LOCAL_PREFIXES = ("run.remote_", "run.launcher", "jax.", "ray.")


@dataclasses.dataclass(frozen=True)
class Invitation:
    """How to join a run."""

    package: str  # version
    addresses: dict[str, str]  # by server, as other machines reach them
    key: str  # empty where all roles talk over unix sockets
    options: dict[str, Any]  # by dotted key, of the run

    @classmethod
    def make(cls, options: Options, roles: RoleOptions) -> "Invitation":
        """That of a run whose roles listen at the addresses of `roles`."""
        key = Path(key_file(roles))
        flat = {k: v for k, v in flatten(options).items() if k not in LOCAL and not k.startswith(LOCAL_PREFIXES)}
        addresses = {role: seen_addr(roles.address(role)) for role in SERVERS}
        return cls(dreamfleet.__version__, addresses, key.read_text() if key.is_file() else "", flat)

    @classmethod
    def parse(cls, text: str, name: str) -> "Invitation":
        """Reads a file or a line; `name` says in errors where it is from."""
        try:
            if not text.lstrip().startswith("{"):
                line = base64.urlsafe_b64decode(text.strip().encode())
                text = zlib.decompressobj().decompress(line, MOST_BYTES).decode()
            values = json.loads(text)
            found = cls(**{field.name: values[field.name] for field in dataclasses.fields(cls)})
            found.check_types()
        except (ValueError, KeyError, TypeError, RecursionError, binascii.Error, zlib.error):
            remedy = f"copy {FILE} from the log directory of the run again, or what `dreamfleet join --show` prints"
            raise ConfigError("join", name, "does not say how to join a run", remedy) from None
        if found.package != dreamfleet.__version__:
            reason = f"is of dreamfleet {found.package}, but this is {dreamfleet.__version__}"
            raise ConfigError("join", name, reason, "install the same version on both machines")
        return found

    def check_types(self) -> None:
        """Raises ValueError for fields that no trainer has written."""
        texts = [self.package, self.key, *(self.addresses[role] for role in SERVERS)]
        if not all(isinstance(text, str) for text in texts) or not isinstance(self.options, dict):
            raise ValueError("fields of other types")

    def write(self, path: Path) -> None:
        """Keeps it in a file that only its user can read."""
        with replacing(path) as draft:
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(dataclasses.asdict(self), file, indent=1)

    def to_line(self) -> str:
        """The same for whoever copies text rather than files."""
        return base64.urlsafe_b64encode(zlib.compress(json.dumps(dataclasses.asdict(self)).encode(), 9)).decode()

    def make_options(self, kind: str) -> Options:
        """The options of a role that joins, for words of the command to change, without sockets of another machine."""
        addresses = {f"run.{role}_addr": _reachable(addr) for role, addr in self.addresses.items()}
        if kind in self.addresses:  # a server listens where the run looks for it
            address = Address.parse(addresses[f"run.{kind}_addr"])
            everywhere = join_host("::" if address.is_ipv6 else "0.0.0.0", address.port)
            addresses[f"run.{kind}_addr"] = address.text if address.is_loopback else everywhere
        envs = {"run.envs": os.cpu_count() or 1, "run.eval_envs": 0}
        return load_options({**self.options, **addresses, **envs})

    def check_reach(self, kind: str, run: RunOptions) -> None:
        """Raises ConfigError where a role cannot be without an address that the options do not have."""
        role = "actor" if kind == "envs" else kind
        if run.address(role) == UNKNOWN:
            key = f"run.{role}_addr"
            reason = "is a unix socket that is not on this machine, or whose run is over"
            remedy = f"join where and while the run is, or start it with --{key} HOST:PORT"
            raise ConfigError(key, self.addresses[role], reason, remedy)


def read_invitation(name: str) -> Invitation:
    """The invitation in a file, or with `-` on standard input."""
    if name == "-":
        return Invitation.parse(sys.stdin.read(MOST_BYTES), "-")
    path = Path(name).expanduser()
    try:
        with (path / FILE if path.is_dir() else path).open() as file:
            _warn_of_readers(file.fileno(), file.name)
            return Invitation.parse(file.read(MOST_BYTES), name)
    except UnicodeDecodeError:
        return Invitation.parse("", name)
    except OSError as error:
        reason, remedy = f"cannot be read ({error.strerror})", f"copy {FILE} from the log directory of the run"
        if isinstance(error, FileNotFoundError) and path.is_dir():
            reason = f"is a directory without {FILE}, which a run writes when it starts"
            remedy = "name the log directory of a run that was started (run.mode parallel)"
        if len(name) > 200:  # the line itself
            name, reason = f"{name[:20]}...", "would be seen by everybody on this machine, in the list of processes"
            remedy = "put the line into a file, or pipe it into `dreamfleet join -`"
        raise ConfigError("join", name, reason, remedy) from None


def _warn_of_readers(descriptor: int, name: str) -> None:
    """Not refused, as the key itself is: containers get their secrets in files that a group can read."""
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if os.name == "posix" and mode & 0o044:
        print(
            f"warning: {name} has mode {mode:o} and holds the key of the run: others can join; run chmod 600 on it",
            file=sys.stderr,
            flush=True,
        )


def describe_joining(options: RoleOptions, file: Path | None) -> Iterator[str]:
    """What to type elsewhere for the roles that this run does not start itself."""
    roles = [role for role in ("envs", "replay", "logger") if getattr(options, f"remote_{role}")]
    if not file:  # of a script, which has options of its own
        if roles:
            yield f"{', '.join(roles)} join from elsewhere, with the key {key_file(options)} (mode 600)"
        return
    for role in roles:
        yield f"to join: dreamfleet join {FILE}{'' if role == 'envs' else f' --role {role}'}"
    if roles:
        yield f"copy {file} to the other machine for that (it holds the key of the run: mode 600)"


def _reachable(text: str) -> str:
    """An address, unless it is a unix socket that is not on this machine."""
    address = Address.parse(text)
    return UNKNOWN if address.is_ipc and not Path(address.path).parent.is_dir() else text


def seen_addr(text: str) -> str:
    """An address as other machines reach it, where that differs from what is listened on."""
    address = Address.parse(text)
    return text if address.is_ipc or address.host not in ANY else join_host(socket.gethostname(), address.port)
