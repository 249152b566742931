"""Where runs are, and the only place where the dashboard opens files: nothing outside of the given folders."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dreamfleet.base.logdir import SERIES
from dreamfleet.metrics.reading import open_regular

SIGNS = ("config.yaml", *SERIES)  # a directory with one of these is a run
MAX_DEPTH = 6
MAX_BYTES = 64 << 20  # of a file that is sent as a whole


class Outside(OSError):
    """A path that leads out of the given folders."""


class Folder:
    """One run's directory, inside one of the roots. Symbolic links may lead around inside of the run, not out of it."""

    def __init__(self, path: Path):
        self.path = path
        self._paths: dict[str, Path] = {}  # making one takes several times as long as to look at the file
        self._real = Path(os.path.realpath(path))

    def open(self, path: Path) -> int:
        """A descriptor to read a regular file with."""
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(self._real):
            raise Outside(f"{path} is outside of {self.path}")
        return open_regular(real)

    def read(self, name: str, last: int | None = None) -> bytes:
        """The content of a file, or its last bytes."""
        fd = self.open(self.path / name)
        try:
            size = os.fstat(fd).st_size
            length = min(size, MAX_BYTES if last is None else last)
            return os.pread(fd, length, size - length if last is not None else 0)
        finally:
            os.close(fd)

    def logs(self, name: str) -> list[str]:
        """The names of the logs in a directory, without their ending."""
        return [file.removesuffix(".log") for file in self.list(name) if re.fullmatch(r"[\w.-]+\.log", file)]

    def list(self, name: str) -> list[str]:
        """The names in a directory of the run; empty if there is none."""
        try:
            if not self._path_of(name).is_dir():
                return []
            path = Path(os.path.realpath(self._path_of(name)))
            return sorted(entry.name for entry in path.iterdir()) if path.is_relative_to(self._real) else []
        except OSError:
            return []

    def version(self, name: str) -> tuple[int, int]:
        """Changes when the file does."""
        try:
            info = self._path_of(name).stat()
        except OSError:
            return -1, -1
        return info.st_size, info.st_mtime_ns

    def _path_of(self, name: str) -> Path:
        return self._paths.get(name) or self._paths.setdefault(name, self.path / name)


def find_runs(roots: Sequence[Path]) -> dict[str, Path]:
    """The runs at or below each root by a name that is theirs: the path from the root, and its name if there are more.

    Symbolic links below a root are not followed.
    """
    found: dict[str, Path] = {}
    for root in roots:
        for path in _search(root, 0):
            parts = path.relative_to(root).parts
            name = _to_text("/".join((root.name, *parts) if len(roots) > 1 or not parts else parts))
            if found.setdefault(name, path) != path:  # roots of the same name
                found.setdefault(_to_text(str(path)), path)
    return found


def _to_text(path: str) -> str:
    """A name that a browser can send back; bytes of a path that are no text are written as escapes."""
    return path.encode("utf-8", "backslashreplace").decode()


def _search(directory: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(directory) as entries:
            entries = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name in SIGNS for entry in entries):
        yield directory
    elif depth < MAX_DEPTH:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from _search(Path(entry.path), depth + 1)
