"""What the endpoints count, turned into rates and means for `stats()`."""

import threading
import time


class Counters:
    """Events, times of calls and traffic since they were last taken; safe to use from any thread.

    The bytes are running totals, added to only by the thread that moves the data, or under its lock.
    """

    def __init__(self, *events: str):
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._events = dict.fromkeys(events, 0.0)
        self._calls: dict[str, list[float]] = {}  # method -> [calls, seconds waited, seconds worked]
        self.bytes_in = self.bytes_out = 0
        self._traffic = {"bytes_in": 0, "bytes_out": 0}

    def add(self, event: str) -> None:
        with self._lock:
            self._events[event] += 1

    def add_calls(self, method: str, calls: int, waited_s: float, worked_s: float) -> None:
        """Adds `calls` calls that together waited and worked for so long."""
        with self._lock:
            entry = self._calls.setdefault(method, [0, 0.0, 0.0])
            entry[0] += calls
            entry[1] += waited_s
            entry[2] += worked_s

    def take(self) -> dict[str, float]:
        """Statistics since the last take."""
        traffic = {"bytes_in": self.bytes_in, "bytes_out": self.bytes_out}
        now = time.monotonic()
        with self._lock:
            seconds = max(now - self._since, 1e-9)
            stats = dict(self._events)
            stats |= {f"{key}_rate": (total - self._traffic[key]) / seconds for key, total in traffic.items()}
            calls, self._calls = self._calls, {}
            self._events = dict.fromkeys(self._events, 0.0)
            self._since, self._traffic = now, traffic
        for method, (count, waited_s, worked_s) in calls.items():
            stats[f"{method}/rate"] = count / seconds
            stats[f"{method}/wait_ms"] = 1000 * waited_s / count
            stats[f"{method}/work_ms"] = 1000 * worked_s / count
        return stats
