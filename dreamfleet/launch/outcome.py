"""How a run ends: the signals that ask it to stop, and what became of it."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

HANG_UP = getattr(signal, "SIGHUP", None)  # not on Windows
STOP_SIGNALS = tuple(filter(None, (signal.SIGINT, signal.SIGTERM, HANG_UP)))
COMPLETE, STOPPED, FAILED = "complete", "stopped", "failed"  # the last `state` in `status.json`


class Outcome(NamedTuple):
    """The end of a run that did not fail: it is complete, or something asked it to stop."""

    state: str
    stop_reason: str = ""  # such as SIGTERM, or another replica of the run, which is as if it were one
    is_old: bool = False  # it was complete before it was started

    @property
    def exit_code(self) -> int:
        """0, or what a shell reports of a process that a signal ended."""
        reason = "SIGTERM" if self.stop_reason.startswith("replica ") else self.stop_reason
        number = getattr(signal, reason, None) if self.state == STOPPED else None
        return 128 + number if isinstance(number, signal.Signals) else 0


@contextlib.contextmanager
def stop_signals(handle: Callable[[str], None]) -> Iterator[None]:
    """Calls `handle(name)` for each signal that asks to stop; does nothing outside the main thread.

    A hang-up that is ignored, as under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_ignored = HANG_UP is not None and signal.getsignal(HANG_UP) == signal.SIG_IGN
    numbers = [number for number in STOP_SIGNALS if not (number == HANG_UP and is_ignored)]
    previous = {number: signal.signal(number, lambda n, _: handle(signal.Signals(n).name)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
