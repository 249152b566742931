"""Log lines about peers, so that a peer that keeps misbehaving does not fill the log."""

import logging
import threading
import time

_EVERY_S = 30.0
_log = logging.getLogger("dreamfleet.rpc")


class LimitedLog:
    """Writes at most one line of a kind in a while, and says how many it left out; a quiet one writes nothing."""

    def __init__(self, name: str, *, is_quiet: bool = False):
        self._name, self._is_quiet = name, is_quiet
        self._lock = threading.Lock()
        self._kinds: dict[str, list[float]] = {}  # kind -> [time of the last line, lines left out since]

    def warning(self, kind: str, message: str) -> None:
        self._write(logging.WARNING, kind, message)

    def error(self, kind: str, message: str) -> None:
        self._write(logging.ERROR, kind, message)

    def _write(self, level: int, kind: str, message: str) -> None:
        if self._is_quiet:
            return
        now = time.monotonic()
        with self._lock:
            entry = self._kinds.setdefault(kind, [-_EVERY_S, 0])
            if now - entry[0] < _EVERY_S:
                entry[1] += 1
                return
            left_out, entry[:] = entry[1], [now, 0]
        suffix = f" ({left_out:.0f} more of this kind since the last line)" if left_out else ""
        _log.log(level, "%s: %s%s", self._name, message, suffix)
