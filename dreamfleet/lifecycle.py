"""What a role tells its supervisor (state, waits, progress, failure) and what it is told (stop, incarnation).

One per process. Anything that waits registers here for as long as it does, so that `status.json` can name it; anything
that must wake up when the process is asked to stop registers a callback; every thread of a role is started here.
"""

import contextlib
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

log = logging.getLogger("dreamfleet.lifecycle")

LOOK_S = 2.0  # the most that counts between two looks at a limit, which come every second
SAME_WAIT_S = 0.5  # a wait for the same thing that starts again within this time is still the same wait

Figures = dict[str, float | str]  # of a role, shown with its status

_lock = threading.RLock()  # a signal handler may ask for a stop while its thread holds it
_waits: dict[int, "Wait"] = {}  # by thread id
_past_waits: dict[int, tuple["Wait", float]] = {}  # the last one of each thread, with its end
_limits: list["Limit"] = []
_callbacks: list[Callable[[], None]] = []
_stop = threading.Event()
_state = "starting"
_listener: Callable[[], None] | None = None  # hears of every change of the state, and of the first progress
_has_progressed = False
_incarnation = 0
_beat = time.monotonic()
_figures: Callable[[], Figures] = dict
_failure_lock = threading.RLock()  # held until the listener has heard of the failure
_failure: BaseException | None = None
_failure_listener: Callable[[BaseException], None] | None = None
_is_complete = False
_stop_reason = ""  # that the supervisor is told
_is_orphaned = False


class Wait(NamedTuple):
    """What a thread waits for, perhaps again and again."""

    what: str
    since: float
    begun: float  # the last time
    before_s: float = 0.0  # how long it waited the other times

    def waited_s(self, now: float) -> float:
        return self.before_s + now - self.begun

    def describe(self, now: float) -> dict:
        seconds = now - self.since
        share = self.waited_s(now) / seconds if seconds > 0 else 1.0
        return {"what": self.what, "seconds": round(seconds, 1), "share": round(share, 2)}


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Declares what this thread waits for, shown in `status.json` until the block ends; the outermost one counts."""
    thread_id = threading.get_ident()
    if thread_id in _waits:
        yield
        return
    now = time.monotonic()
    wait = Wait(what, now, now)
    before, ended = _past_waits.get(thread_id, (None, 0.0))
    if before and before.what == what and now - ended < SAME_WAIT_S:
        wait = Wait(what, before.since, now, before.waited_s(ended))
    _waits[thread_id] = wait
    try:
        yield
    finally:
        _past_waits[thread_id] = (_waits.pop(thread_id, wait), time.monotonic())


def waits(older_than_s: float = 0.0) -> list[dict]:
    """The waits in progress, longest first, as `{"what", "seconds", "share"}`, the share of the time really waited."""
    now = time.monotonic()
    work = [Wait(what, since, since) for what, since in filter(None, [limit.work for limit in _limits])]
    entries = sorted([*_waits.values(), *work], key=lambda wait: wait.since)
    return [wait.describe(now) for wait in entries if now - wait.since >= older_than_s]


class Limit:
    """Watches over what one thread does again and again: a process in which it once takes too long is replaced.

    A thread that hangs cannot help itself; the supervisor hears of it from another thread and ends the process. Time in
    which that thread did not look does not count: the whole process was stopped, or its machine.
    """

    def __init__(self, timeout_s: float):
        """Without a timeout (0) the work is only shown among the waits."""
        self.work: tuple[str, float] | None = None  # what, monotonic start
        self._timeout_s = timeout_s
        self._seen: tuple[str, float] | None = None  # at the last look
        self._age_s = self._looked = 0.0
        _limits.append(self)

    def begin(self, what: str) -> None:
        """Starts a piece of work, after the one before."""
        self.work = what, time.monotonic()

    def end(self) -> None:
        """Nothing is being done until the next `begin`."""
        self.work = None

    def overdue(self) -> str | None:
        """What has taken too long, if anything; called by one thread."""
        work, now = self.work, time.monotonic()
        if work is None:
            return None
        if work is not self._seen:
            self._seen, self._age_s, self._looked = work, 0.0, work[1]
        self._age_s += min(now - self._looked, LOOK_S)
        self._looked = now
        return f"{work[0]} has taken {self._age_s:.0f} s" if 0 < self._timeout_s < self._age_s else None


def overdue() -> str | None:
    """What has taken longer in this process than its limit allows, if anything."""
    return next((text for limit in _limits if (text := limit.overdue())), None)


def set_state(state: str) -> None:
    """Announces `starting`, `running` or `stopping`; who is asked to stop is not running any more."""
    global _state
    if state != _state and not (state == "running" and stopping()):
        _state = state
        if _listener:
            _listener()


def on_state(callback: Callable[[], None]) -> None:
    """Calls `callback`, of which there is one, in the thread that changes the state."""
    global _listener
    _listener = callback


def state() -> str:
    return _state


def progress() -> None:
    """Announces that the role gets things done: the deaths before this life do not count any more."""
    global _has_progressed
    if not _has_progressed:
        _has_progressed = True
        if _listener:
            _listener()


def has_progressed() -> bool:
    return _has_progressed


def incarnation() -> int:
    """Which life of its role this process is, over all restarts and resumes of the run; seeds are derived from it."""
    return _incarnation


def set_incarnation(number: int) -> None:
    global _incarnation
    _incarnation = number


def beat() -> None:
    """Marks a turn of the role's main loop."""
    global _beat
    _beat = time.monotonic()


def beat_age_s() -> float:
    return time.monotonic() - _beat


def show_figures(figures: Callable[[], Figures]) -> None:
    """Has what `figures` returns shown with the role's status; it is called about once a second, in another thread."""
    global _figures
    _figures = figures


def figures() -> Figures:
    return _figures()


def stopping() -> bool:
    """Whether this process was asked to stop."""
    return _stop.is_set()


def wait_stop(timeout_s: float | None = None) -> bool:
    """Blocks until the process is asked to stop; returns whether it was."""
    return _stop.wait(timeout_s)


@contextlib.contextmanager
def on_stop(callback: Callable[[], None]) -> Iterator[None]:
    """Calls `callback` once if a stop is requested before the block ends (at once if it was already)."""
    with _lock:
        _callbacks.append(callback)
        already = _stop.is_set()
    try:
        if already:
            callback()
        yield
    finally:
        with _lock:
            if callback in _callbacks:
                _callbacks.remove(callback)


def request_stop() -> None:
    """Asks every loop in this process to end; safe to call from any thread, and more than once."""
    with _lock:
        if _stop.is_set():
            return
        _stop.set()
        callbacks = list(_callbacks)
    set_state("stopping")
    for callback in callbacks:
        try:
            callback()
        except Exception:
            log.exception("a callback of the stop failed")


def ask_stop(reason: str) -> None:
    """Has the whole run stopped, for a reason that only this process has heard of."""
    global _stop_reason
    _stop_reason = reason
    if _listener:
        _listener()
    request_stop()


def stop_reason() -> str:
    """Why the supervisor is asked to stop the run, if it is."""
    return _stop_reason


def note_orphaned() -> None:
    """Says that nobody has asked for the stop that follows: the supervisor is gone."""
    global _is_orphaned
    _is_orphaned = True


def is_orphaned() -> bool:
    """Whether this process stops because its supervisor is gone."""
    return _is_orphaned


def stop_soon() -> None:
    """Requests the stop without waiting for the callbacks that this runs."""
    with contextlib.suppress(RuntimeError):  # the interpreter is already shutting down
        threading.Thread(target=request_stop, name="stop", daemon=True).start()


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Lets SIGTERM or SIGINT end a role in order that a script calls in its main thread, and a second one at once.

    A signal that the script handles itself is left to it, as are those of our own processes.
    """
    usual = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    if threading.current_thread() is not threading.main_thread():
        usual = {}
    ours = {number: handler for number, handler in usual.items() if signal.getsignal(number) is handler}
    owner = os.getpid()

    def restore() -> None:
        for number, handler in ours.items():
            signal.signal(number, handler)

    def handle(number: int, _: object) -> None:
        restore()
        if os.getpid() == owner:
            stop_soon()
        else:  # a process that the role forked has to end when the role terminates it
            signal.raise_signal(number)

    for number in ours:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()


def spawn(target: Callable[..., None], *args: Any, name: str, daemon: bool = True) -> threading.Thread:
    """Starts a thread of a role; what it dies of ends the role."""

    def run() -> None:
        try:
            target(*args)
        except BaseException as error:
            fail(error)

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread


def fail(error: BaseException) -> None:
    """Makes an error that nobody else hears of the one that the role ends with; the first of several counts."""
    global _failure
    with _failure_lock:
        is_first, _failure = _failure is None, _failure or error
        if is_first and _failure_listener:
            _failure_listener(error)
    if error is not _failure or not _failure_listener:
        traceback.print_exception(error)
    stop_soon()


def failure() -> BaseException | None:
    """What the role fails with, if anything; whoever listens has heard of it then."""
    with _failure_lock:
        return _failure


def raise_failure() -> None:
    """Raises what a thread of the role died of, or what else made it fail."""
    if error := failure():
        raise error


def on_failure(callback: Callable[[BaseException], None]) -> None:
    """Calls `callback`, of which there is one, in the thread that fails first; without it, failures are printed."""
    global _failure_listener
    _failure_listener = callback


def note_complete() -> None:
    """Says that the run has reached its end, before the stop is requested."""
    global _is_complete
    _is_complete = True


def is_complete() -> bool:
    """Whether the run that stops has reached its end, so that nobody needs to wait for it to come back."""
    return _is_complete


def reset() -> None:
    """Forgets a past stop, so that one process can run several fleets one after the other."""
    global _failure, _failure_listener, _has_progressed, _is_complete, _stop_reason
    _is_complete, _stop_reason = False, ""
    with _failure_lock:
        _failure = _failure_listener = None
    _has_progressed = False
    set_incarnation(0)
    with _lock:
        _stop.clear()
        _callbacks.clear()
        _limits.clear()
    _waits.clear()
    _past_waits.clear()
    set_state("starting")
    show_figures(dict)
    beat()
