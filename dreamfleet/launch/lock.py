"""One run at a time in a log directory."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from dreamfleet.base import filesystems
from dreamfleet.errors import ConfigError


class LogdirInUse(ConfigError):
    """Another process has the directory."""


@contextlib.contextmanager
def lock_logdir(logdir: str | Path) -> Iterator[None]:
    """Holds the directory for this process; refuses if another run has it, and says which."""
    with _open(Path(logdir)) as file:
        if not _lock(file, Path(logdir)):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            remedy = "stop that run first, or choose another logdir"
            raise LogdirInUse("logdir", str(logdir), f"is in use by process {holder}", remedy)
        if obstacle := filesystems.find_obstacle(Path(logdir)):
            raise _unfit(Path(logdir), obstacle)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield  # the lock goes with the file, also when the process is killed


def _open(directory: Path) -> TextIO:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return (directory / "run.lock").open("a+")
    except OSError as error:
        reason = f"cannot be written to ({error.strerror}: {error.filename})"
        raise ConfigError("logdir", str(directory), reason, "choose a directory that you may write to") from None


def _lock(file: TextIO, directory: Path) -> bool:
    try:
        return filesystems.take_lock(file.fileno())
    except OSError as error:
        raise _unfit(directory, f"files cannot be locked ({error.strerror})") from None


def _unfit(directory: Path, obstacle: str) -> ConfigError:
    kind = filesystems.find_kind(directory.resolve()) or "unknown"
    remedy = "choose one on a local disk, or have it mounted with what is missing"
    return ConfigError("logdir", str(directory), f"is on a file system of kind {kind} where {obstacle}", remedy)
