"""Looks at every observation of an environment for what breaks the contract; used by `checker`.

All values have a leading dimension, for one environment or several.
"""

import elements
import numpy as np

from dreamfleet.base.arrays import Batch
from dreamfleet.envs.check_report import CheckReport
from dreamfleet.envs.contract import STEP_SPACES, can_hold


class StepChecker:
    """Follows the flags of the episodes and compares observations with their spaces."""

    def __init__(self, obs_space: dict[str, elements.Space], rows: int, report: CheckReport):
        self._spaces = obs_space
        self._report = report
        self._step = 0
        self._is_last = np.ones(rows, bool)
        self._scores, self._lengths = np.zeros(rows), np.zeros(rows, int)
        self._brightest = {k: 0 for k, s in obs_space.items() if s.dtype == np.uint8 and len(s.shape) == 3}
        self.episodes: list[tuple[float, int]] = []  # score and length

    def add(self, reset: np.ndarray, obs: Batch) -> bool:
        """Checks one step; returns whether the next one can be checked at all."""
        if missing := sorted(self._spaces.keys() - obs.keys()):
            self._say("error", "keys", f"the observation has no {missing}", "missing")
            return False
        if extra := sorted(obs.keys() - self._spaces.keys()):
            self._say("warning", "keys", f"the observation has {extra}, which obs_space does not: ignored", "extra")
        is_right = [self._check_value(key, obs[key], space) for key, space in self._spaces.items()]
        if all(is_right):
            self._check_flags(reset | self._is_last, obs)
            self._count(obs)
        self._step += 1
        return all(is_right)

    def finish(self) -> None:
        """Says what only shows over many steps."""
        for key, brightest in self._brightest.items():
            if brightest <= 1 and self._step > 1:
                message = f"'{key}' was never above 1; multiply fractions by 255 before making them uint8"
                self._report.add("warning", "images", message)

    def _check_value(self, key: str, value: np.ndarray, space: elements.Space) -> bool:
        if value.shape[1:] != space.shape:
            self._say("error", "shapes", f"'{key}' has shape {value.shape[1:]}, but its space says {space.shape}", key)
            return False
        if not can_hold(space.dtype, value.dtype):
            self._say("error", "dtypes", f"'{key}' is {value.dtype}, but its space says {space.dtype}", key)
            return False
        if value.dtype != space.dtype and key not in STEP_SPACES:
            self._say("warning", "dtypes", f"'{key}' is {value.dtype}, and converted to {space.dtype}", key)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            self._say("error", "numbers", f"'{key}' has NaN or infinity in it", key)
        else:
            self._check_range(key, value, space)
        return True

    def _check_range(self, key: str, value: np.ndarray, space: elements.Space) -> None:
        if key in self._brightest:
            self._brightest[key] = max(self._brightest[key], int(value.max()))
            return
        if space.dtype == bool:
            return
        is_outside = (value < space.low) | (value >= space.high if space.discrete else value > space.high)
        if is_outside.any():
            kept = f"{space.low.min()} to {space.high.max() - 1 if space.discrete else space.high.max()}"
            level = "error" if space.discrete else "warning"
            self._say(level, "ranges", f"'{key}' is {value[is_outside][0]}, but its space says {kept}", key)

    def _check_flags(self, starts: np.ndarray, obs: Batch) -> None:
        is_first, is_last = obs["is_first"].astype(bool), obs["is_last"].astype(bool)
        if (starts & ~is_first).any():
            self._say("error", "flags", "a new episode was due, but is_first is not set", "late")
        if (is_first & ~starts).any():
            self._say("error", "flags", "is_first is set in the middle of an episode (no is_last before it)", "early")
        if (is_first & is_last).any():
            self._say(
                "error", "flags", "is_first and is_last are set at once; an episode has two steps or more", "both"
            )
        if (obs["is_terminal"].astype(bool) & ~is_last).any():
            self._say("warning", "flags", "is_terminal is set before the last step, as if the episode ended", "term")
        if obs["reward"][is_first].any():
            self._say(
                "warning", "rewards", "the first observation of an episode has a reward, but no action before", "0"
            )

    def _count(self, obs: Batch) -> None:
        is_first, self._is_last = obs["is_first"].astype(bool), obs["is_last"].astype(bool)
        self._scores = np.where(is_first, 0, self._scores) + obs["reward"]
        self._lengths = np.where(is_first, 0, self._lengths + 1)
        self.episodes += [(float(self._scores[i]), int(self._lengths[i])) for i in np.flatnonzero(self._is_last)]

    def _say(self, level: str, check: str, message: str, about: str) -> None:
        self._report.add(level, check, f"step {self._step}: {message}", about)
