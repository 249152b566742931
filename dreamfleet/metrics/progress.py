"""How far the run is, as one small file: the logger writes it, the launcher's terminal and the dashboard read it."""

import dataclasses
import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dreamfleet.base.files import replace_file

PACE_S = 60.0  # that an estimate of the rest looks back
LEAST_PACE_S = 2.0


class Goal(NamedTuple):
    """How far a run is, in steps or in updates; a total of 0 is no limit."""

    unit: str  # step or update
    done: int
    total: int

    @property
    def share(self) -> float:
        return self.done / self.total if self.total > 0 else 0.0


@dataclasses.dataclass
class Progress:
    """The numbers of the live block; None where there is no value yet."""

    step: int = 0
    total_steps: int = 0  # 0: no limit of them
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
    episode_length: float | None = None
    elapsed_s: float = 0.0
    eta_s: float | None = None
    total_updates: int = 0  # 0: no limit of them

    def goal(self) -> Goal:
        """What the run is measured by: the one of its limits that it is nearest to, or how far it is without one."""
        limits = [goal for goal in self._limits() if goal.total > 0]
        is_offline = self.updates > 0 and not self.step
        return max(limits, key=lambda goal: goal.share) if limits else self._limits()[is_offline]

    def _limits(self) -> tuple[Goal, Goal]:
        return Goal("step", self.step, self.total_steps), Goal("update", self.updates, self.total_updates)


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
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max  # not NaN, nor an integer beyond the range of floats


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class Eta:
    """Seconds to the end of a run, which is the first of its limits to be reached; None while that is not known."""

    def __init__(self, total_steps: int = 0, duration_s: float = 0.0, total_updates: int = 0):
        self._duration_s = duration_s
        self._paces = Pace(total_steps), Pace(total_updates)

    def estimate(self, step: int, updates: int, elapsed_s: float) -> float | None:
        """Takes in how far the run is; before the first update, steps come at another pace."""
        steps, of_updates = self._paces
        ends = [steps.estimate(step, elapsed_s, updates > 0), of_updates.estimate(updates, elapsed_s, updates > 0)]
        ends += [self._duration_s - elapsed_s] if self._duration_s > 0 else []
        known = [end for end in ends if end is not None]
        return max(0.0, min(known)) if known else None


class Pace:
    """Seconds until a count is at its total, by its pace over the last minute of training."""

    def __init__(self, total: int):
        self._total = total
        self._points: deque[tuple[float, int]] = deque()  # seconds and counts

    def estimate(self, done: int, elapsed_s: float, is_training: bool) -> float | None:
        points = self._points
        if not is_training or (points and done <= points[0][1]):  # not begun, or still at the start
            points.clear()
        if is_training and (not points or elapsed_s > points[-1][0]):
            points.append((elapsed_s, done))
        while points and elapsed_s - points[0][0] > PACE_S:
            points.popleft()
        if not self._total or not points or (seconds := elapsed_s - points[0][0]) < LEAST_PACE_S:
            return None
        pace = (done - points[0][1]) / seconds
        return (self._total - done) / pace if pace > 0 else None


class RoleFigures:
    """Progress of roles whose run is elsewhere: the steps that they took themselves, from their status."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seen: dict[str, int] = {}  # steps of each role's process
        self._progress = Progress()
        self._start = self._since = clock()

    @property
    def env_rate(self) -> float:
        return self._progress.env_rate

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
