"""Where the time of a loop goes, by the names of its sections."""

import time
from collections import defaultdict
from collections.abc import Callable


class Sections:
    """Shares of the time since it was last asked; the owner is in one section at a time, until it enters the next."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._since = self._asked = clock()
        self._name = ""
        self._seconds: dict[str, float] = defaultdict(float)

    def enter(self, name: str) -> None:
        now = self._clock()
        self._seconds[self._name] += now - self._since
        self._name, self._since = name, now

    def result(self) -> dict[str, float]:
        """The share of each section, as metrics below `time/`."""
        self.enter(self._name)
        elapsed = self._since - self._asked
        shares = {f"time/{name}": seconds / elapsed for name, seconds in self._seconds.items() if name and elapsed}
        self._asked = self._since
        self._seconds.clear()
        return shares
