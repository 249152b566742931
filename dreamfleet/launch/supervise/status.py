"""`logdir/status.json`: what every role is doing. The supervisor writes it, the terminal and the dashboard read it."""

import json
import os
import time
from pathlib import Path

from dreamfleet.launch.supervise.role_record import RoleRecord


def make_status(state: str, roles: list[RoleRecord]) -> dict:
    """The status of the fleet, as in the file."""
    return {
        "time": time.time(),
        "state": state,
        "supervisor": os.getpid(),
        "roles": {role.spec.name: role.status() for role in roles},
    }


def write_status(logdir: Path, status: dict) -> None:
    """Replaces the file atomically."""
    temporary = logdir / f".status.json.{os.getpid()}"
    temporary.write_text(json.dumps(status, indent=1))
    temporary.replace(logdir / "status.json")


def read_status(logdir: Path | str) -> dict:
    """The last status that was written."""
    return json.loads(Path(logdir, "status.json").read_text())
