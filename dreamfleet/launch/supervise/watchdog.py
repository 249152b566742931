"""Kills a process whose GIL is never released. Fed by the lifeline thread."""

import faulthandler
import os
import threading


class Watchdog:
    """Ends the process, with the stacks of all threads in its log, when it is not fed for `timeout_s`."""

    def __init__(self, timeout_s: float):
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        # A fork would have the state of the timer but not its thread, for which it would then wait when it exits.
        os.register_at_fork(before=self._pause, after_in_parent=self._resume, after_in_child=self._lock.release)

    def feed(self, timeout_s: float | None = None) -> None:
        """Starts the time over; optionally with another limit."""
        with self._lock:
            self._timeout_s = timeout_s or self._timeout_s
            self._start()

    def _start(self) -> None:
        # Its thread is not a Python thread, and does not need the GIL.
        faulthandler.dump_traceback_later(self._timeout_s, exit=True, file=2)

    def _pause(self) -> None:
        self._lock.acquire()
        faulthandler.cancel_dump_traceback_later()

    def _resume(self) -> None:
        self._start()
        self._lock.release()
