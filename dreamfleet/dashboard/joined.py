"""Roles that have joined a run from elsewhere, `joined/NAME/status.json`.

They write it themselves where they share the run's log directory; of others, the actor writes what they tell it.
"""

import re
import time
from typing import Any

from dreamfleet.base.joined import ENDED, FOLDER, GONE_S, OWNER, PLACE, SILENT_S
from dreamfleet.dashboard.folders import Folder
from dreamfleet.dashboard.status import parse_status


class Joined:
    """The roles of all that have joined by `NAME/ROLE`; `refresh` reads what has changed."""

    def __init__(self, folder: Folder):
        self.roles: dict[str, dict[str, Any]] = {}
        self._folder = folder
        self._read: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}  # status by name, with its version

    def refresh(self) -> bool:
        """Whether any role is in another state, has come or has gone."""
        before, now = self.roles, time.time()
        places = [name for name in self._folder.list(FOLDER) if re.fullmatch(PLACE, name)]
        self._read = {place: self._refresh_one(place) for place in places}
        self.roles = {}
        for place, ((_, changed_ns), status) in self._read.items():
            silence_s = now - changed_ns / 1e9
            if not status or status["state"] in ENDED or silence_s > GONE_S:
                continue
            is_silent = silence_s > SILENT_S
            for name, role in status.get("roles", {}).items():
                self.roles[f"{place}/{name}"] = {**role, **({"state": "silent", "waits": []} if is_silent else {})}
        return self.roles != before

    def logs(self) -> list[str]:
        """The names of all logs, as those of the roles."""
        return [f"{place}/{name}" for place in self._read for name in self._folder.logs(f"{FOLDER}/{place}/logs")]

    def _refresh_one(self, place: str) -> tuple[tuple[int, int], dict[str, Any]]:
        directory = f"{FOLDER}/{place}"
        version = self._folder.version(f"{directory}/status.json")
        known = self._read.get(place)
        if known and known[0] == version:
            return known
        try:
            status = parse_status(self._folder.read(f"{directory}/status.json"))
        except OSError:
            return version, {}
        machines = [name.removeprefix(OWNER) for name in self._folder.list(directory) if name.startswith(OWNER)]
        for role in status.get("roles", {}).values():
            role["machine"] = ", ".join(machines)
        return version, status


def log_path(name: str) -> str:
    """The file of a log that `logs` has named, or of a role of the run itself."""
    place, _, role = name.rpartition("/")
    return f"{FOLDER}/{place}/logs/{role}.log" if place else f"logs/{role}.log"
