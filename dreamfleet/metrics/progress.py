"""How far the run is, as one small file: the logger writes it, the launcher's terminal and the dashboard read it."""

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

from dreamfleet.base.files import replace_file


@dataclasses.dataclass
class Progress:
    """The numbers of the live block; None where there is no value yet."""

    step: int = 0
    total_steps: int = 0  # 0: the run has no end
    score: float | None = None
    eval_score: float | None = None
    env_rate: float = 0.0  # steps per second
    update_rate: float = 0.0  # updates per second
    replay_fill: int = 0  # in steps, as the capacity
    replay_capacity: int = 0
    ratio: float | None = None
    target_ratio: float = 0.0  # 0: not limited
    updates: int = 0
    episodes: int = 0
    elapsed_s: float = 0.0
    eta_s: float | None = None


_DEFAULTS = dataclasses.asdict(Progress())


def write_progress(logdir: str | Path, progress: Progress) -> None:
    """Replaces `progress.json` in one piece, so that a reader never sees half of it."""
    values = {key: _finite_or_none(value) for key, value in dataclasses.asdict(progress).items()}
    replace_file(Path(logdir) / "progress.json", json.dumps(values))


def read_progress(logdir: str | Path) -> Progress | None:
    """The progress last written, or None if there is none that can be read."""
    try:
        return parse_progress((Path(logdir) / "progress.json").read_bytes())
    except OSError:
        return None


def parse_progress(content: bytes) -> Progress | None:
    """The progress in the content of a file."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    # A key of another version is ignored, a missing or empty one has its default.
    known = {key: value for key, value in values.items() if key in _DEFAULTS and value is not None}
    if not all(_is_number(value) for value in known.values()):
        return None
    return Progress(**known)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class RoleFigures:
    """Progress of roles whose run is elsewhere: the steps that they took themselves, from their status."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seen: dict[str, int] = {}  # steps of each role's process
        self._progress = Progress()
        self._start = self._since = clock()

    def progress(self, status: dict) -> Progress:
        """The sum over all roles, and over the processes that each had."""
        now, steps, progress = self._clock(), 0, self._progress
        for name, role in status.get("roles", {}).items():
            count = role.get("figures", {}).get("steps", 0)
            before = self._seen.get(name, 0)
            steps += count - before if count >= before else count
            self._seen[name] = count
        progress.step += steps
        if now > self._since:
            progress.env_rate = steps / (now - self._since)
        progress.elapsed_s, self._since = now - self._start, now
        return progress
