"""What joined machines say of themselves, kept where all that shows the run looks for it; their failures are logged.

A machine with a log directory of its own gets `joined/HOST.NAME`, as those have `joined/NAME` that share the run's.
"""

import contextlib
import json
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamfleet import rpc
from dreamfleet.base.files import replace_file
from dreamfleet.base.joined import ENDED, FOLDER, GONE_S, MOST_MACHINES, OWNER, SILENT_S
from dreamfleet.base.text import printable
from dreamfleet.errors import BadRequest
from dreamfleet.roles.protocol import STATUS_BYTES, MachineStatus, RoleFailure

log = logging.getLogger("dreamfleet.actor")

EVERY_S = 1.0  # at most, a machine's file is written
FILES_PER_S = 100.0  # of all machines
MOST_FAILURES = 20  # of a machine that are logged within the time below
FAILURES_S = 60.0


@dataclass
class Machine:
    """What is known of one that has joined."""

    heard: float
    place: str = ""  # its directory, once it has one
    written: float | None = None
    has_ended: bool = False
    session: str = ""
    last_failure: int = -1  # that was logged, of this life of it
    logged: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_FAILURES))
    left_out: int = 0  # failures since the last that was logged


class Machines:
    """Takes the `status` of machines, of at most `most` at a time; called by one thread."""

    def __init__(
        self, logdir: str | Path, run: str, most: int = MOST_MACHINES, clock: Callable[[], float] = time.monotonic
    ):
        self._root, self._run, self._most, self._clock = Path(logdir) / FOLDER, run, most, clock
        self._machines: dict[str, Machine] = {}  # by owner, the latest last
        self._log = rpc.LimitedLog("actor")

    def take(self, data: Any, _: dict) -> dict:
        """Keeps what a machine says; a disk that is full costs this picture only."""
        status = MachineStatus.from_data(data)
        if not all((status.owner, status.session, status.name, status.host)):
            raise BadRequest("a status names its owner, session, directory and host")
        if not all(re.fullmatch(r"[\w.-]+", role) for role in status.roles):
            raise BadRequest(f"names of roles have letters, digits, '_', '.' and '-' only: {list(status.roles)[:5]!r}")
        if (size := status.count_bytes()) > STATUS_BYTES:
            raise BadRequest(f"a status has at most {STATUS_BYTES} bytes, not {size}")
        machine = self._find(status.owner)
        self._log_failures(machine, status)
        # Whoever writes into the log directory of this very run has its status there already.
        if not (self._run and status.run == self._run) and self._is_due(machine, status.state):
            self._write(machine, status)
        return {}

    def _find(self, owner: str) -> Machine:
        now = self._clock()
        machine = self._machines.pop(owner, None)
        if machine is None:
            self._make_room(now)
            machine = Machine(now)
        machine.heard = now
        self._machines[owner] = machine
        return machine

    def _make_room(self, now: float) -> None:
        if len(self._machines) < self._most:
            return
        longest_silent = next(iter(self._machines))
        if now - self._machines[longest_silent].heard < SILENT_S:
            raise BadRequest(f"{self._most} machines have joined already; others are not shown")
        del self._machines[longest_silent]

    def _is_due(self, machine: Machine, state: str) -> bool:
        """Whether to write its file: not too often, but always that it has ended."""
        if machine.written is None or (state in ENDED and not machine.has_ended):
            return True
        return self._clock() - machine.written >= max(EVERY_S, len(self._machines) / FILES_PER_S)

    def _write(self, machine: Machine, status: MachineStatus) -> None:
        machine.written, machine.has_ended = self._clock(), status.state in ENDED
        content = {k: v for k, v in status.to_data().items() if k not in ("owner", "session", "failures")}
        try:
            machine.place = machine.place or self._take_place(status)
            directory = self._root / machine.place
            directory.mkdir(parents=True, exist_ok=True)
            marker = _marker(directory, status)
            if not marker.exists():
                replace_file(marker, status.owner.encode(errors="replace"))
            replace_file(directory / "status.json", json.dumps({"time": time.time(), **content}, indent=1))
        except OSError as error:
            self._log.warning("machine", f"the status of {printable(status.host)} cannot be written: {error}")

    def _take_place(self, status: MachineStatus) -> str:
        """The first name that no other machine has: several may have the same host and directory."""
        self._remove_surplus()
        name = f"{_file_name(status.host)[:50]}.{_file_name(status.name)[:30]}"
        taken = {machine.place for machine in self._machines.values()}
        names = (name, *(f"{name}-{number}" for number in range(2, self._most + 2)))
        place = next(name for name in names if name not in taken and self._is_free(name, status))
        if not _is_owned(self._root / place, status):
            for file in _files(self._root / place):
                file.unlink(missing_ok=True)
        return place

    def _is_free(self, place: str, status: MachineStatus) -> bool:
        directory = self._root / place
        return _is_owned(directory, status) or _silence_s(directory) > GONE_S

    def _remove_surplus(self) -> None:
        """Removes the directories of machines that have been silent for longest, where there are too many."""
        kept = {machine.place for machine in self._machines.values()}
        # Only those of other machines have a dot in their name.
        found = [path for path in self._root.glob("*.*") if path.is_dir()] if self._root.is_dir() else []
        surplus = len(found) + 1 - self._most
        silent = [(_silence_s(path), path) for path in found if path.name not in kept] if surplus > 0 else []
        for silence_s, path in sorted(silent, reverse=True)[: max(0, surplus)]:
            if silence_s > SILENT_S:
                for file in _files(path):
                    file.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # has something else in it
                    path.rmdir()

    def _log_failures(self, machine: Machine, status: MachineStatus) -> None:
        if machine.session != status.session:
            machine.session, machine.last_failure = status.session, -1
        for failure in sorted(status.failures, key=lambda failure: failure.number):
            if failure.number > machine.last_failure:
                machine.last_failure = failure.number
                self._log_failure(machine, status, failure)

    def _log_failure(self, machine: Machine, status: MachineStatus, failure: RoleFailure) -> None:
        now, logged = self._clock(), machine.logged
        if len(logged) == MOST_FAILURES and now - logged[0] < FAILURES_S:
            machine.left_out += 1
            return
        logged.append(now)
        more = f" ({machine.left_out} more are not shown)" if machine.left_out else ""
        machine.left_out = 0
        head = f"{status.host}, {status.name}: {failure.role} failed: {failure.reason}"
        log.warning("%s%s", "\n    ".join(map(printable, (head, *failure.lines))), more)


def _file_name(text: str) -> str:
    """What a peer says as a part of a name that leads nowhere else."""
    return re.sub(r"[^\w.-]+", "_", text, flags=re.ASCII).lstrip(".-") or "_"


def _marker(directory: Path, status: MachineStatus) -> Path:
    return directory / f"{OWNER}{_file_name(status.host)}"


def _is_owned(directory: Path, status: MachineStatus) -> bool:
    """Whether a directory is that of the machine, as after a restart of this process."""
    try:
        return _marker(directory, status).read_bytes() == status.owner.encode(errors="replace")
    except OSError:
        return False


def _silence_s(directory: Path) -> float:
    """Since a status was written there; infinity if there is none."""
    try:
        return time.time() - (directory / "status.json").stat().st_mtime
    except OSError:
        return float("inf")


def _files(directory: Path) -> Iterator[Path]:
    """Those that were written here, and drafts that a kill has left."""
    for pattern in ("status.json", f"{OWNER}*", ".status.json.*", f".{OWNER}*"):
        yield from directory.glob(pattern)
