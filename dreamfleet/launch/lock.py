"""One run at a time in a log directory."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from dreamfleet.errors import ConfigError


@contextlib.contextmanager
def lock_logdir(logdir: str | Path) -> Iterator[None]:
    """Holds the directory for this process; refuses if another run has it, and says which."""
    directory = Path(logdir)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "run.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            remedy = "stop that run first, or choose another logdir"
            raise ConfigError("logdir", str(logdir), f"is in use by process {holder}", remedy) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield  # the lock goes with the file, also when the process is killed
