"""What the endpoints count, turned into rates and means for `stats()`."""

import threading
import time


class Counters:
    """Sums and per-method times since they were last taken; safe to use from any thread."""

    def __init__(self):
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._sums: dict[str, float] = {}
        self._methods: dict[str, list[float]] = {}  # method -> [calls, seconds waited, seconds worked]

    def add(self, key: str, amount: float = 1) -> None:
        with self._lock:
            self._sums[key] = self._sums.get(key, 0) + amount

    def add_call(self, method: str, waited_s: float, worked_s: float) -> None:
        """Adds one call that was queued and then worked on for so long."""
        with self._lock:
            entry = self._methods.setdefault(method, [0, 0.0, 0.0])
            entry[0] += 1
            entry[1] += waited_s
            entry[2] += worked_s

    def take(self) -> tuple[dict[str, float], dict[str, list[float]], float]:
        """The sums, the method entries and the seconds since the last take."""
        now = time.monotonic()
        with self._lock:
            taken = self._sums, self._methods, max(now - self._since, 1e-9)
            self._sums, self._methods, self._since = {}, {}, now
        return taken
