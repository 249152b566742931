"""File systems: which kind a directory is on, and whether it can do what a run needs."""

import errno
import fcntl
import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dreamfleet.base import filesystems
from dreamfleet.base.filesystems import find_kind, find_obstacle, is_network, take_lock
from dreamfleet.errors import ConfigError
from dreamfleet.launch.lock import lock_logdir

# ramfs cannot reserve space, as NFS before version 4.2 cannot.
ON_RAMFS = """
import sys
from pathlib import Path
from dreamfleet.base.filesystems import find_kind, find_obstacle
from dreamfleet.roles.replay.counts import Counts, CountsFile

directory = Path(sys.argv[1])
assert find_kind(directory / "counts") == "ramfs", find_kind(directory)
assert find_obstacle(directory) == ""
for life in range(3):
    file = CountsFile(directory / "counts")
    assert file.read().inserts == life
    file.write(Counts(inserts=life + 1))
    file.close()
"""


def test_the_kind_of_a_path_is_found():
    assert find_kind(Path("/proc/self")) == "proc"
    assert find_kind(Path("/").resolve()) not in ("", "proc")


def test_network_file_systems_are_known():
    assert is_network("nfs4") and is_network("fuse.sshfs") and is_network("fuse.gcsfuse")
    assert not is_network("ext4") and not is_network("fuseblk") and not is_network("fuse.ntfs-3g")


def test_a_lock_has_one_holder(tmp_path):
    with (tmp_path / "lock").open("w") as one, (tmp_path / "lock").open("w") as other:
        assert take_lock(one.fileno()) and not take_lock(other.fileno())
        one.close()
        assert take_lock(other.fileno())


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="only root may mount a file system")
def test_counts_are_kept_where_space_cannot_be_reserved(tmp_path):
    mount = f'mount -t ramfs none {tmp_path} && exec "$0" -c "$1" {tmp_path}'
    subprocess.run(["unshare", "--mount", "sh", "-c", mount, sys.executable, ON_RAMFS], check=True)


def raising(number: int):
    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("module", "name", "number", "obstacle"),
    [
        (fcntl, "flock", errno.ENOLCK, "files cannot be locked"),
        (mmap, "mmap", errno.ENODEV, "files cannot be mapped"),
        (os, "posix_fallocate", errno.EOPNOTSUPP, "files cannot be mapped"),
        (Path, "replace", errno.EPERM, "files cannot be replaced"),
    ],
)
def test_a_log_directory_that_lacks_something_is_refused_with_what_it_is(
    module, name, number, obstacle, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, name, raising(number))
    monkeypatch.setattr(filesystems, "find_kind", lambda path: "fuse.strange")
    reason = rf"is on a file system of kind fuse.strange where {obstacle} \({os.strerror(number)}\); choose one on"
    with pytest.raises(ConfigError, match=reason), lock_logdir(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]


def test_a_mapping_that_keeps_what_is_written_to_itself_is_noticed(tmp_path, monkeypatch):
    private = mmap.mmap
    monkeypatch.setattr(mmap, "mmap", lambda fd, size: private(fd, size, flags=mmap.MAP_PRIVATE))
    assert find_obstacle(tmp_path) == "what is written to a mapped file is not read from it"
