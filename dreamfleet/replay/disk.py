"""The directory of a store on disk: its lock, its state file and its segment files."""

import logging
import mmap
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dreamfleet.base import filesystems
from dreamfleet.errors import ConfigError, ReplayError
from dreamfleet.replay.recovery import clean
from dreamfleet.replay.segment import SUFFIX, Layout, Segment, open_segment
from dreamfleet.replay.space import disk_room, refuse_network
from dreamfleet.replay.state import StoreState, create_state, open_state

log = logging.getLogger("dreamfleet.replay")


class DiskFiles:
    """Segments in a directory that one process at a time writes to."""

    is_lasting = True

    def __init__(self, directory: str | Path):
        self.directory = Path(directory).expanduser()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            refuse_network(self.directory)
            self._lock = _lock(self.directory / "lock")
        except OSError as error:
            reason = f"cannot be written to ({error.strerror}: {error.filename})"
            remedy = "choose a writable directory"
            raise ConfigError("replay.directory", str(directory), reason, remedy) from error
        self._state: StoreState | None = None

    @property
    def place(self) -> str:
        return str(self.directory)

    @property
    def state(self) -> StoreState:
        assert self._state is not None, "load comes first"
        return self._state

    def room(self) -> int:
        return disk_room(self.directory)

    def load(self) -> tuple[list[Segment], bool]:
        """The segments, oldest first, and whether every committed row is there; damaged files are set aside."""
        paths = sorted(self.directory.glob(f"*{SUFFIX}"))
        segments = [segment for path in paths if (segment := self._try(path, _open))]
        self._state = self._load_state(segments)
        newest = next((segment for segment in reversed(segments) if self._is_own(segment)), None)
        good = [segment for segment in segments if self._try(segment.path, self._clean, segment, newest)]
        if not self._state.is_same_boot:
            log.warning("%s: the machine was restarted, steps after the last fsync are lost", self.directory)
        return good, len(good) == len(paths) and self._state.is_same_boot

    def create(self, layout: Layout, serial: int) -> Segment:
        """A segment for which all space is reserved."""
        path = self.directory / f"{serial:012d}{SUFFIX}"
        draft = path.with_suffix(".new")
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.posix_fallocate(fd, 0, layout.size)
            segment = Segment(layout, mmap.mmap(fd, layout.size), str(path))
            segment.populate()
            segment.begin(self.state.store_id + serial.to_bytes(8, "big"))
            draft.rename(path)  # a file with this name always has a header
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        return segment

    def delete(self, segment: Segment) -> None:
        """Gives the space back, as soon as nobody reads the rows any more."""
        Path(segment.path).unlink(missing_ok=True)

    def sync(self, segments: Iterable[Segment], number: int) -> None:
        """Forces these segments to the disk, which must hold all changes since the last sync up to row `number`."""
        for path in [*(segment.path for segment in segments), str(self.directory)]:
            try:
                fd = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # evicted
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
        self.state.mark_synced(number)

    def close(self) -> None:
        os.close(self._lock)

    def _load_state(self, segments: list[Segment]) -> StoreState:
        path = self.directory / "state"
        try:
            return open_state(path, is_writable=True)
        except (OSError, ValueError) as error:
            if segments:
                log.warning("%s is unusable (%s): recovering every row that was found", path, error)
        store_id = segments[0].id[:8] if segments else os.urandom(8)
        return create_state(path, store_id, max((int(segment.numbers.max()) for segment in segments), default=0))

    def _clean(self, _: Path, segment: Segment, newest: Segment | None) -> Segment:
        if newest is None or not self._is_own(segment):
            raise ValueError("it is of another store")
        if segment.layout.header != newest.layout.header:
            raise ValueError("it has other columns or another size than the newest segment")
        clean(segment, self.state.committed)
        segment.settle()
        return segment

    def _is_own(self, segment: Segment) -> bool:
        return segment.id[:8] == self.state.store_id

    def _try(self, path: Path | str, fn: Callable[..., Segment], *args: Any) -> Segment | None:
        """Calls `fn`; if the segment turns out to be damaged, it is kept out of the store, but on the disk."""
        try:
            return fn(Path(path), *args)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            aside = Path(path).with_suffix(".damaged")
            Path(path).replace(aside)
            log.warning("segment %s is damaged (%s): moved to %s, the others are used", path, error, aside)
            return None


def _open(path: Path) -> Segment:
    return open_segment(str(path), is_writable=True)


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not filesystems.take_lock(fd):
            holder = os.pread(fd, 32, 0).decode() or "unknown"
            raise ReplayError(f"{path.parent} is in use by process {holder}; stop it, or use another directory")
    except BaseException:
        os.close(fd)
        raise
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd
