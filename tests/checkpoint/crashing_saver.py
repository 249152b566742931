"""Saves a checkpoint again and again, and is killed at one file operation later each time.

Started by `test_crash.py` with a directory; every attempt leaves its log directory there, as `attempt-NUMBER`.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from dreamfleet.checkpoint import Checkpoints

OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}


class LastMoment:
    """An array that kills its process when its content is asked for: in the middle of a part."""

    shape, dtype = (3,), np.dtype(np.float32)

    def __array__(self, dtype=None, copy=None):
        os.kill(os.getpid(), signal.SIGKILL)


def save(logdir: Path, step: int, tail: object = None) -> None:
    draft = Checkpoints(logdir, keep=1).draft(step)
    draft.write("agent", {"params": np.full(1 << 16, step), "tail": tail})
    draft.write("replay", {"step": step})
    draft.commit({"updates": step})


def die_at(operation: int) -> None:
    count = 0

    def hook(event: str, args: tuple) -> None:
        nonlocal count
        if event in OPERATIONS:
            count += 1
            if count == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def attempt(root: Path, number: int) -> bool:
    """Forks a process that saves twice and dies in the second; returns whether it got through."""
    logdir = root / f"attempt-{number:03d}"
    pid = os.fork()
    if pid == 0:
        save(logdir, 1)
        die_at(number)
        save(logdir, 2, LastMoment() if number == 0 else None)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or status == 0, status
    return status == 0


if __name__ == "__main__":
    number = 0
    while not attempt(Path(sys.argv[1]), number):
        number += 1
