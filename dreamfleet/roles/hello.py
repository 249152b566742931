"""How processes of a run present themselves to each other, and what has to agree before one serves the other.

A client says `hello` first over every connection (`Introduction`), the server answers with its own or refuses
(`Reception`). Every role adds the checks that concern it.
"""

import dataclasses
import functools
import logging
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import dreamfleet
from dreamfleet.base.joined import FOLDER
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import BadRequest, DreamfleetError, Refused, RpcError, RunOver
from dreamfleet.options import RoleOptions
from dreamfleet.roles.protocol import HELLO, ROLES, Hello, ReplayCounts

log = logging.getLogger("dreamfleet.roles")

# Options that make the batches of a replay, and how many of them it hands out.
SETTINGS = (
    *("batch_size", "batch_length", "report_length", "consec_train", "consec_report"),
    *("replay_context", "train_ratio"),
)
MOST_PEERS = 4096  # that are remembered

Check = Callable[[Hello], None]  # of what a peer says; raises `BadRequest` with both sides and the remedy


def make_hello(options: RoleOptions, role: str, **facts: Any) -> Hello:
    """What a process says of itself."""
    return Hello(
        role=role,
        owner=owner_of(options),
        host=_host(),
        package=dreamfleet.__version__,
        run=options.run_id,
        task=options.task,
        settings={name: repr(getattr(options, name)) for name in SETTINGS},
        **facts,
    )


def owner_of(options: RoleOptions) -> str:
    """Whoever restarts this process when it dies: its supervisor, or somebody on this machine."""
    return options.owner or _host()


class Introduction:
    """The client's side: presents `make()`, and takes whom it talks to from then on as the run that it belongs to.

    A client that `ends` gives up when it is refused; others wait until somebody fits.
    """

    method = HELLO

    def __init__(self, make: Callable[[], Hello], *, ends: bool):
        self._make, self._ends = make, ends
        self._run = ""

    def present(self) -> dict[str, Any]:
        hello = self._make()
        return dataclasses.replace(hello, run=hello.run or self._run).to_data()

    def accept(self, answer: Any) -> None:
        self._run = Hello.from_data(answer).run or self._run

    def is_final(self, error: RpcError) -> bool:
        return self._ends and isinstance(error, (BadRequest, RunOver))


class Reception:
    """The server's side: checks who calls, answers with `make()`, and remembers who was let in."""

    def __init__(self, options: RoleOptions, make: Callable[[], Hello], check: Check = lambda _: None):
        self._make, self._check = make, check
        self._identity = RunIdentity(options)
        self._peers: dict[str, str] = {}  # session -> role of those whom more is allowed, oldest first

    def welcome(self, data: Any, _: dict) -> dict[str, Any]:
        """Answers a hello, or refuses it with what differs."""
        theirs, ours = Hello.from_data(data), self._make()
        if theirs.role not in ROLES or not theirs.session:
            raise BadRequest(f"a hello names a role ({', '.join(ROLES)}) and a session")
        if theirs.package != ours.package:
            versions = f"the {theirs.role} has dreamfleet {theirs.package}, this {ours.role} has {ours.package}"
            raise BadRequest(f"{versions}: install the same version on both")
        self._check_run(theirs, ours.role)
        self._check(theirs)
        if theirs.role in ("actor", "learner"):
            self._identity.adopt(theirs.run)
            self._peers[theirs.session] = theirs.role
        if len(self._peers) > MOST_PEERS:
            del self._peers[next(iter(self._peers))]
        return dataclasses.replace(ours, run=self._identity.run).to_data()

    def knows(self, session: str, role: str) -> bool:
        """Whether somebody of this role has presented itself as this client."""
        return self._peers.get(session) == role

    def _check_run(self, theirs: Hello, role: str) -> None:
        ours = self._identity.run
        is_central = theirs.role in ("actor", "learner")  # which always know their run
        if ours and theirs.run != ours and (theirs.run or is_central):
            runs = f"the {theirs.role} on {theirs.host} belongs to run {theirs.run or 'unknown'}, this {role} to {ours}"
            remedy = f"correct the address, or start the {role} with a log directory of its own for each run"
            raise BadRequest(f"{runs}: {remedy}")


class RunIdentity:
    """The id of the run that a role belongs to: its fleet's, or that of the first trainer that it worked for."""

    def __init__(self, options: RoleOptions):
        self._joined = Path(options.logdir) / FOLDER / "run.id"
        self.run = options.run_id or read_run(options.logdir) or _read_id(self._joined)

    def adopt(self, run: str) -> None:
        """Belongs to this run from here on, also after a restart, unless it belongs to one already."""
        if not self.run and run:
            self.run = run
            self._joined.parent.mkdir(parents=True, exist_ok=True)
            self._joined.write_text(run)


def run_file(logdir: str | Path) -> Path:
    return Path(logdir) / "run.id"


def read_run(logdir: str | Path) -> str:
    """The id of the run in a log directory; empty if there is none."""
    return _read_id(run_file(logdir))


def own_run_id(logdir: str | Path) -> str:
    """The id of the run in a log directory, which is made for a new one."""
    return own_id(run_file(logdir))


def own_id(path: Path) -> str:
    """The id in a file, which is made where there is none: it stays the same after a restart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        if found := _read_id(path):
            return found
        descriptor = os.open(path, os.O_WRONLY)  # a kill right after it was made
    with os.fdopen(descriptor, "w") as file:
        file.write(run := uuid.uuid4().hex)
    return run


def is_elsewhere(logdir: str | Path, run: str) -> bool:
    """Whether the trainer of a run has another log directory than this one; refuses a run that this is not of."""
    own = read_run(logdir)
    if run and own and own != run:
        raise BadRequest(f"the log directory is that of run {own}, not of run {run}")
    return bool(run) and not own


def stored_counts(options: RoleOptions) -> ReplayCounts:
    """What the run's newest checkpoint says that replay holds."""
    try:
        return ReplayCounts.from_data(Checkpoints(options.logdir).newest_manifest().get("counts", {}))
    except DreamfleetError:
        return ReplayCounts()


def check_settings(theirs: Hello, ours: Hello) -> None:
    """Refuses a trainer that was started with other batches than its replay."""
    names = [name for name in SETTINGS if name in theirs.settings and theirs.settings[name] != ours.settings[name]]
    if names:
        given, wanted = (", ".join(f"{name}={side.settings[name]}" for name in names) for side in (ours, theirs))
        remedy = "start both with the same options (config.yaml in the log directory of the run)"
        raise BadRequest(f"this {ours.role} was started with {given}, but the {theirs.role} with {wanted}: {remedy}")


def check_spaces(kind: str, theirs: Mapping[str, str], ours: Mapping[str, str], task: str) -> None:
    """Refuses an environment whose spaces are not those of the run."""
    differing = sorted(key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key))
    if differing:
        shown = [f"'{key}' is {theirs.get(key, 'missing')}, expected {ours.get(key, 'none')}" for key in differing[:5]]
        more = f" and {len(differing) - 5} more" if len(differing) > 5 else ""
        remedy = f"start the worker with the task and environment options of the run (here {task})"
        raise BadRequest(f"the environment has other {kind} than the run: {', '.join(shown)}{more}: {remedy}")


def describe_spaces(spaces: Mapping[str, Any] | None, *, has_bounds: bool = False) -> dict[str, str]:
    """Spaces as text, in which two are equal that fit each other; those of actions with their bounds."""
    return {key: _describe(space, has_bounds) for key, space in (spaces or {}).items()}


def _describe(space: Any, has_bounds: bool) -> str:
    text = f"{np.dtype(space.dtype).name}{tuple(space.shape)}"
    if not has_bounds:
        return text
    low, high = (np.unique(np.asarray(bound)) for bound in (space.low, space.high))
    return f"{text} from {np.array2string(low, threshold=8)} to {np.array2string(high, threshold=8)}"


def refused(error: BadRequest) -> Refused:
    """The same error, for a process that has nothing to do without the other side."""
    return error if isinstance(error, Refused) else Refused(str(error))


@functools.cache
def _host() -> str:
    return socket.gethostname()[:64]


def _read_id(path: Path) -> str:
    try:
        return path.read_text().strip()[:64]
    except OSError:
        return ""
