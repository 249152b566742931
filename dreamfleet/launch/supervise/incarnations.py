"""The lives of all roles in a log directory, numbered over restarts and resumes: no role has the same number twice.

Seeds are derived from the number, so that what dies or is stopped does not draw its first numbers again.
"""

import time
from pathlib import Path

from dreamfleet.base.files import replace_file

NAME = "incarnations"


class Incarnations:
    """Keeps the first number that no role has had in the file `incarnations`; without a directory, nothing is kept."""

    def __init__(self, logdir: Path | None):
        self._path = logdir / NAME if logdir else None
        self.first = self._unused = self._read()

    def use(self, number: int) -> None:
        """Notes the number before a role starts with it; raises OSError if it cannot be kept."""
        if number >= self._unused:
            self._unused = number + 1
            if self._path:
                replace_file(self._path, f"{self._unused}\n")

    def _read(self) -> int:
        try:
            return int(self._path.read_text()) if self._path else 0
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):  # damaged: the time is beyond all numbers that were counted
            return int(time.time())
