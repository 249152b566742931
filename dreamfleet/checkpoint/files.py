"""File operations that survive a crash, and that tell the user what to do when the disk does not let them."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dreamfleet.errors import CheckpointError

_NO_SPACE = "free some space there, or choose another logdir"
_NO_ACCESS = "make it writable, or choose another logdir"
_IN_THE_WAY = "move away what is there, or choose another logdir"
_REMEDIES = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: _NO_SPACE,
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.EROFS: _NO_ACCESS,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOENT: "it was removed meanwhile, save again",
}


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns errors of the file system into a CheckpointError with path, reason and remedy."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "check the disk, or choose another logdir")
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}; {remedy}") from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """The same for files that should be there."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}; use another checkpoint") from error


@contextlib.contextmanager
def create(path: Path) -> Iterator[BinaryIO]:
    """A file to write, on disk when the block ends; never writable for others, whatever the umask."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Makes the names in a directory survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
