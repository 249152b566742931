"""`logdir/status.json`: what every role is doing. The supervisor writes it, the terminal and the dashboard read it."""

import json
import os
import time
from pathlib import Path

from dreamfleet.base.files import replace_file
from dreamfleet.launch.supervise.role_record import RoleRecord


def make_status(state: str, roles: list[RoleRecord], elapsed_s: float) -> dict:
    """The status of the fleet, as in the file; the time is that since it was started."""
    return {
        "time": time.time(),
        "state": state,
        "elapsed_s": round(elapsed_s, 1),
        "supervisor": os.getpid(),
        "roles": {role.spec.name: role.status() for role in roles},
    }


def write_status(logdir: Path, status: dict) -> None:
    """Replaces the file as a whole, so that a reader never sees half of it."""
    replace_file(logdir / "status.json", json.dumps(status, indent=1))


def read_status(logdir: Path | str) -> dict:
    """The last status that was written."""
    return json.loads(Path(logdir, "status.json").read_text())
