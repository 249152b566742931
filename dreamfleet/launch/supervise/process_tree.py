"""Ending everything that a role started. Used by the supervisor, and by a child for its own descendants.

Two marks find a role's processes: the process group that its child leads, and a variable in the environment that
descendants inherit even when they leave the group for a session of their own.
"""

import contextlib
import os
import signal
from pathlib import Path

TOKEN_VARIABLE = "DREAMFLEET_PROCESS"


def kill_tree(leader: int, token: str) -> None:
    """SIGKILLs the process group of `leader` and every process that carries `token`."""
    # The caller has not reaped the leader yet, so that no stranger can have taken over its group id.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    kill_marked(token)


def kill_marked(token: str, end: str = "\0") -> None:
    """SIGKILLs every process that carries `token`, but not the caller itself."""
    killed = {os.getpid()}
    # A process may fork while the others are being looked at: its copies carry the token too and are found next time.
    while found := _find_marked(token, end) - killed:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= found


def kill_lives(token: str) -> None:
    """The same for all lives of the role whose one life `token` marks."""
    kill_marked(token.rpartition("/")[0], "/")


def _find_marked(token: str, end: str) -> set[int]:
    mark = f"\0{TOKEN_VARIABLE}={token}{end}".encode()
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            # Gone in the meantime, or another user's.
            with contextlib.suppress(OSError):
                if mark in b"\0" + (process / "environ").read_bytes():
                    found.add(int(process.name))
    return found
