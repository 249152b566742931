"""How much a store may hold: its geometry, what it will need, and what the disk or the memory has left for it."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from dreamfleet.base import filesystems
from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.errors import ConfigError
from dreamfleet.replay.schema import Schema
from dreamfleet.replay.segment import SUFFIX, Layout

MOST_STEPS = 5_000_000  # of a capacity that nobody chose
TARGET_SEGMENTS = 32  # of a full store: eviction takes the oldest 1/32
MOST_SEGMENTS = 128  # each holds file descriptors
MOST_OPEN = 4096  # segments, where a capacity was raised since the first was made
SEGMENT_BYTES = 256 << 20


@dataclass(frozen=True)
class Geometry:
    """The segments of a store: at most `segments` hold rows, one more is being prepared and one given back."""

    layout: Layout
    segments: int

    @property
    def rows(self) -> int:
        return self.segments * self.layout.rows

    @property
    def total_bytes(self) -> int:
        return (self.segments + 2) * self.layout.size


def plan(schema: Schema, capacity: int, segment_rows: int | None = None) -> Geometry:
    """The geometry that always keeps the newest `capacity` steps; `segment_rows` is given for a store that exists."""
    if segment_rows is None:
        rows = min(capacity // TARGET_SEGMENTS, SEGMENT_BYTES // schema.row_bytes)
        rows = max(rows, capacity // MOST_SEGMENTS, min(4 * BLOCK_ROWS, capacity // 4))
        segment_rows = -(-max(rows, 1) // BLOCK_ROWS) * BLOCK_ROWS
    return Geometry(Layout(schema, segment_rows), -(-capacity // segment_rows) + 1)


def choose_capacity(schema: Schema, steps: int, room: int) -> int:
    """A capacity for a run of `steps` (0 is endless) that takes at most half of `room` bytes."""
    fitting = room // 2 // (schema.row_bytes + Layout.TABLE_BYTES)
    return max(1, min(MOST_STEPS, steps or MOST_STEPS, fitting))


def check_fit(geometry: Geometry, capacity: int, room: int, place: str) -> None:
    """Raises ConfigError if `room` bytes, or the files that a process may have open, cannot hold the store."""
    if geometry.segments > MOST_OPEN:
        reason = f"needs {geometry.segments:,} segments, as those of {place} were made for fewer steps"
        remedy = "lower it, or make a larger store with `dreamfleet replay export` and `import --capacity`"
        raise ConfigError("replay.capacity", capacity, reason, remedy)
    if geometry.total_bytes > room:
        reason = (
            f"needs {format_bytes(geometry.total_bytes)} ({geometry.layout.schema.row_bytes:,} bytes per step), "
            f"but {place} has {format_bytes(room)} left"
        )
        raise ConfigError(
            "replay.capacity", capacity, reason, "lower it, or choose another replay.directory or storage"
        )


def disk_room(directory: Path) -> int:
    """Bytes that a store in a directory, which need not exist yet, may take in all, with what it takes already."""
    own = sum(path.stat().st_size for path in directory.glob(f"*{SUFFIX}"))
    while not directory.exists():
        directory = directory.parent
    return shutil.disk_usage(directory).free + own


def memory_room() -> int:
    """Bytes of memory that are available to this process, as far as its machine and its container say."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    rooms = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        rooms += [int(limit) - int(used)] if limit != "max" else []
    except (OSError, ValueError):
        pass  # no control group, or one of the first version
    return max(0, min(rooms))


def refuse_network(directory: Path) -> None:
    """Raises ConfigError if the directory is on a network file system, where mapped files are not safe."""
    kind = filesystems.find_kind(directory.resolve())
    if filesystems.is_network(kind):
        remedy = "set it to a directory on a local disk, or replay.storage to ram"
        raise ConfigError("replay.directory", str(directory), f"is on a network file system ({kind})", remedy)


def format_bytes(count: float) -> str:
    """Bytes with a fitting unit."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
