"""What helps against a process whose GIL is never released, where no Python code runs. Used by the lifeline.

While there is a supervisor, it misses the heartbeats and kills the process. The timer here only leaves the stacks: it
also fires in a process that was stopped for long and goes on, which has to live.
"""

import ctypes
import faulthandler
import os
import signal
import threading

PR_SET_PDEATHSIG = 1
PARENT_DIED = signal.SIGSTKFLT  # nothing else uses it; its number, 16, is the time that remains then, in seconds


def end_with_parent() -> None:
    """Has the kernel end this process some time after its parent has died, if it has not ended by itself.

    The kernel sends a signal when the thread that started this process ends, which the supervisor's does only after its
    children. The handler is the C function `alarm`, called with the number of the signal; the alarm is deadly.
    """
    libc = ctypes.CDLL(None)
    libc.signal(PARENT_DIED, libc.alarm)
    libc.prctl(PR_SET_PDEATHSIG, PARENT_DIED)


class Watchdog:
    """Writes the stacks of all threads to the log when it is not fed for `timeout_s`."""

    def __init__(self, timeout_s: float):
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        # A fork would have the state of the timer but not its thread, for which it would then wait when it exits.
        os.register_at_fork(before=self._pause, after_in_parent=self._resume, after_in_child=self._lock.release)

    def feed(self) -> None:
        """Starts the time over."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        # Its thread is not a Python thread, and does not need the GIL.
        faulthandler.dump_traceback_later(self._timeout_s, file=2)

    def _pause(self) -> None:
        self._lock.acquire()
        faulthandler.cancel_dump_traceback_later()

    def _resume(self) -> None:
        self._start()
        self._lock.release()
