"""Machines that have joined a run: their part of its `status.json`, from the files in `joined/`."""

import contextlib
import itertools
import json
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from dreamfleet.base.joined import FOLDER, GONE_S, MOST_MACHINES, PLACE, judge
from dreamfleet.base.text import cut
from dreamfleet.errors import BadRequest
from dreamfleet.roles.protocol import REASON_BYTES, STATUS_ROLES, STATUS_WAITS, WAIT_BYTES, MachineStatus

MOST_BYTES = 1 << 20  # of a file
MOST_ROLES = 1000  # of all machines that are described one by one


class Found(NamedTuple):
    """A file as it was read, or why not: None."""

    version: tuple[int, int]
    status: MachineStatus | None


class JoinedMachines:
    """Reads the files that have changed; whoever wrote them, only what a status may say is taken over."""

    def __init__(self, logdir: Path):
        self._root = logdir / FOLDER
        self._found: dict[str, Found] = {}  # by the name of a directory

    def describe(self) -> dict[str, dict[str, Any]]:
        """What is known of each machine, without those that are gone."""
        now, ages_s = time.time(), {}
        for place, version in self._list():
            if (age_s := max(0.0, now - version[1] / 1e9)) <= GONE_S:
                ages_s[place] = age_s
                if place not in self._found or self._found[place].version != version:
                    self._found[place] = Found(version, _read(self._root / place / "status.json"))
        self._found = {place: self._found[place] for place in sorted(ages_s)}
        machines, room = {}, MOST_ROLES
        for place, (_, status) in itertools.islice(self._found.items(), MOST_MACHINES):
            if status:
                machines[place] = _describe(status, ages_s[place], room)
                room -= len(machines[place]["roles"])
        return machines

    def _list(self) -> list[tuple[str, tuple[int, int]]]:
        """The directories with a status, and what changes when it does."""
        found = []
        with contextlib.suppress(OSError):  # nobody has joined, or it cannot be read at the moment
            places = [path for path in self._root.iterdir() if re.fullmatch(PLACE, path.name)]
            for place in places:
                with contextlib.suppress(OSError):
                    info = (place / "status.json").stat()
                    found.append((place.name, (info.st_size, info.st_mtime_ns)))
        return found


def _describe(status: MachineStatus, age_s: float, room: int) -> dict[str, Any]:
    values = status.to_data()
    facts = {key: values[key] for key in ("host", "package", "protocol", "state", "elapsed_s", "env_rate", "processes")}
    roles = dict(itertools.islice(values["roles"].items(), max(0, room)))
    return {**facts, "state": judge(status.state, age_s), "seen_s": round(age_s, 1), "roles": roles}


def _read(path: Path) -> MachineStatus | None:
    try:
        with path.open("rb") as file:
            return to_message(json.loads(file.read(MOST_BYTES)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, BadRequest):
        return None


def to_message(status: dict[str, Any], **facts: Any) -> MachineStatus:
    """What a `status.json` says, as far as a message has room for it: roles that do not run come first."""
    roles = sorted(status["roles"].items(), key=lambda item: item[1].get("state") == "running")
    values = {key: value for key, value in status.items() if value is not None}
    values["processes"] = status.get("processes", len(roles))
    values["roles"] = {name: _shorten(role) for name, role in roles[:STATUS_ROLES]}
    return MachineStatus.from_data({**values, **facts})


def _shorten(role: dict[str, Any]) -> dict[str, Any]:
    values = {key: value for key, value in role.items() if value is not None}
    values["waits"] = [{**wait, "what": cut(wait["what"], WAIT_BYTES)} for wait in role["waits"][:STATUS_WAITS]]
    if "exit" in values:
        values["exit"] = cut(values["exit"], REASON_BYTES)
    return values
