"""What runs in a role's process: `python -m dreamfleet.launch.child FD`, where FD is its end of the lifeline.

Takes the call to make from the supervisor, so that the user's `__main__` is never run again.
"""

import atexit
import faulthandler
import gc
import logging
import os
import pickle
import resource
import signal
import socket
import sys
import threading
import time
import traceback

from dreamfleet import lifecycle
from dreamfleet.base.seeds import seed_process
from dreamfleet.launch.supervise.lifeline import OUTCOME_TIMEOUT_S, ForwardLogs, Lifeline, receive_order, run_to_end
from dreamfleet.launch.supervise.process_tree import TOKEN_VARIABLE, kill_marked
from dreamfleet.launch.topology import load_target

log = logging.getLogger("dreamfleet.launch")

OPEN_FILES = 1 << 16
GC_THRESHOLD = 20_000  # new objects, 700 by default


def main(fd: int) -> int:
    """Carries out the order that waits in the lifeline; returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = socket.socket(fileno=fd)
    end.set_inheritable(False)
    try:
        order, payload = receive_order(end)
    except EOFError:
        return 1
    token = os.environ[TOKEN_VARIABLE]
    lifeline = Lifeline(end, order["supervisor"], token)
    # Registered first to run last: what this process has started ends with it, whether or not a supervisor is left.
    atexit.register(_end_descendants, os.getpid(), token)
    _handle_signals(lifeline)
    # A role that wakes up lets the one that is working finish: far fewer switches where roles are more than cores.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    _allow_files()
    _set_up_output(lifeline, order)
    threading.excepthook = DyingThreads()
    lifeline.start()
    return _run(lifeline, order, payload)


def _end_descendants(pid: int, token: str) -> None:
    if os.getpid() == pid:  # not in a fork of the role, which also comes here when it exits
        kill_marked(token)


def _run(lifeline: Lifeline, order: dict, payload: bytes) -> int:
    def call() -> None:
        sys.path[:] = order["path"]
        os.chdir(order["cwd"])
        lifecycle.set_incarnation(order["incarnation"])
        seed_process(order["seed"])
        target, args, kwargs = pickle.loads(payload)
        role = load_target(target)
        # What was loaded stays, and what a role makes is freed by its counts: look for cycles rarely.
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 100)
        role(*args, **kwargs)

    def report(outcome: dict) -> None:
        if os.getpid() != pid:  # a fork that the role made and that leaves through here does not speak for it
            return
        if outcome["kind"] == "failure":
            print(outcome["traceback"], file=sys.stderr, flush=True)
        lifeline.send(outcome, OUTCOME_TIMEOUT_S)

    pid = os.getpid()
    return int(run_to_end(call, report))


def _handle_signals(lifeline: Lifeline) -> None:
    faulthandler.enable(file=2)

    def terminate(*_) -> None:
        # A cluster may send SIGTERM to every process at once. Ending here would take away the roles that the main role
        # needs for its last checkpoint.
        lifeline.is_terminated = True

    signal.signal(signal.SIGTERM, terminate)
    # A process that the role forks has to end when the role terminates it.
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def _allow_files() -> None:
    """Raises the number of files that may be open, which is low by default, as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class DyingThreads:
    """Tells once that a thread of the user's own code has died at some place; the role goes on without it."""

    def __init__(self):
        self._told: set[tuple] = set()

    def __call__(self, args: threading.ExceptHookArgs) -> None:
        frames = traceback.extract_tb(args.exc_traceback)
        where = (args.exc_type, *((frame.filename, frame.lineno) for frame in frames[-1:]))
        if args.exc_type is not SystemExit and args.exc_value and where not in self._told:
            self._told.add(where)
            name = args.thread.name if args.thread else "a thread"
            log.warning("thread %s died, continuing without it", name, exc_info=args.exc_value)


def _set_up_output(lifeline: Lifeline, order: dict) -> None:
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    name, incarnation = order["name"], order["incarnation"]
    logging.basicConfig(format=f"%(asctime)s {name} %(levelname)s %(message)s", stream=sys.stderr)
    logger = logging.getLogger("dreamfleet")
    logger.setLevel(logging.INFO)
    logger.addHandler(ForwardLogs(lifeline))
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"--- {when} {name} incarnation {incarnation} pid {os.getpid()} ---", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
