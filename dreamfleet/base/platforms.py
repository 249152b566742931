"""What of the operating system the supervisor of a run needs, and which systems lack it."""

import importlib.util
import os
import socket
import sys

from dreamfleet.errors import ConfigError


def find_lacking() -> list[tuple[str, str]]:
    """What this system does not have of what training needs, each with its purpose."""
    needed = {
        "memfd": (hasattr(os, "memfd_create"), "factories are handed to processes in it"),
        "pidfd": (hasattr(os, "pidfd_open"), "processes are watched by it"),
        "unix sockets": (hasattr(socket, "AF_UNIX"), "processes are reached over them"),
        "fcntl": (importlib.util.find_spec("fcntl") is not None, "log directories are locked with it"),
    }
    return [(name, purpose) for name, (is_there, purpose) in needed.items() if not is_there]


def check_platform(what: str) -> None:
    """Raises ConfigError where the processes of a fleet cannot be supervised."""
    if lacking := find_lacking():
        names = ", ".join(name for name, _ in lacking)
        reason = f"is not supported on {sys.platform}, which has no {names}"
        remedy = "use Linux (or WSL 2), or run environments here with dreamfleet.roles.env.parallel_env"
        raise ConfigError("command", what, reason, remedy)
