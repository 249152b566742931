"""What a directory can do: file systems that are reached over a network may lack locks, or keep mapped files badly."""

import contextlib
import errno
import mmap
import os
from pathlib import Path

NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "ceph-fuse",
    "afs",
    "lustre",
    "beegfs",
    "blobfuse",
    "blobfuse2",
    "davfs",
    "gcsfuse",
    "glusterfs",
    "goofys",
    "gpfs",
    "juicefs",
    "moosefs",
    "mount-s3",
    "orangefs",
    "panfs",
    "pvfs2",
    "rclone",
    "s3fs",
    "sshfs",
    "wekafs",
)

_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def find_kind(path: Path) -> str:
    """The kind of file system that a path is on, as the kernel names it; empty on systems that do not tell."""
    best, kind, mounts = -1, "", Path("/proc/self/mountinfo")
    for line in mounts.read_text().splitlines() if mounts.exists() else ():
        before, _, after = line.partition(" - ")
        mount = before.split()[4].encode().decode("unicode_escape")  # blanks are written as \040
        if len(mount) >= best and (path == Path(mount) or Path(mount) in path.parents):
            best, kind = len(mount), after.split()[0]
    return kind


def is_network(kind: str) -> bool:
    """Whether files of this kind of file system may be changed by other machines."""
    return kind.removeprefix("fuse.") in NETWORK


def take_lock(fd: int) -> bool:
    """Locks an open file until it is closed; False if another process has it, OSError if there are no locks here."""
    import fcntl  # not on Windows, where nothing is trained, but environments run

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def reserve(fd: int, size: int) -> None:
    """Makes a file at least so large, and not a hole: a write to one through a mapping is fatal on a full disk."""
    if os.fstat(fd).st_size < size:
        os.posix_fallocate(fd, 0, size)


def find_obstacle(directory: Path) -> str:
    """What files of a run need and this directory does not have; empty if there is nothing."""
    draft, target = (directory / f".probe.{os.getpid()}.{name}" for name in ("draft", "target"))
    what = "files cannot be made"
    try:
        fd = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(fd, "r+b", 0):
            what = "files cannot be mapped"
            reserve(fd, mmap.PAGESIZE)
            with mmap.mmap(fd, mmap.PAGESIZE) as memory:
                memory[:5] = b"probe"
                if os.pread(fd, 5, 0) != b"probe":
                    return "what is written to a mapped file is not read from it"
        what = "files cannot be replaced"
        target.touch()
        draft.replace(target)
    except OSError as error:
        return f"{what} ({error.strerror})"
    finally:
        for path in (draft, target):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return ""
