"""What the roles of these tests do. They tell the test how far they are through their logs."""

import ctypes
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from dreamfleet import lifecycle
from dreamfleet.errors import ConfigError, NonFiniteLoss

log = logging.getLogger("dreamfleet.tests")


def announce(text: str = "ready") -> None:
    lifecycle.set_state("running")
    log.info("%s pid=%d", text, os.getpid())


def serve() -> None:
    """Runs until it is stopped."""
    announce()
    lifecycle.wait_stop()
    log.info("stopped")


def wait_at(gate: str) -> None:
    """Returns when the test opens the gate (a FIFO), whether or not it is asked to stop."""
    announce()
    with Path(gate).open("rb", buffering=0) as file:
        file.read(1)


def fail(text: str) -> None:
    raise ValueError(text)


def fail_for_good(text: str) -> None:
    announce()
    raise NonFiniteLoss(text)


def count_lives(marker: str) -> int:
    """How often a role has been started before."""
    with Path(marker).open("a+") as file:
        file.seek(0)
        lives = len(file.read())
        file.write("x")
    return lives


def die_when_running(marker: str, times: int, progress: bool) -> None:
    """Is killed as soon as it runs, with or without having got something done, so many times."""
    lives = count_lives(marker)
    lifecycle.set_state("running")
    if progress:
        lifecycle.progress()
    if lives < times:
        os.kill(os.getpid(), signal.SIGKILL)
    serve()


def refuse(key: str) -> None:
    log.info("looking at %s", key)
    raise ConfigError(key, 0, "cannot work", "change it")


def refuse_later(key: str, marker: str) -> None:
    """Runs once, refuses when it is started again, and runs after that."""
    if count_lives(marker) == 1:
        refuse(key)
    serve()


def fail_when_running(text: str) -> None:
    announce()
    raise ValueError(text)


def fail_at(gate: str, text: str) -> None:
    wait_at(gate)
    raise ValueError(text)


def fail_on_stop(text: str) -> None:
    serve()
    raise ValueError(text)


def fail_starts(folder: str, times: int) -> None:
    """Fails the given number of starts, then serves."""
    starts = len(list(Path(folder).iterdir()))
    if starts < times:
        Path(folder, str(starts)).touch()
        raise ValueError(f"failed start {starts}")
    serve()


def return_at_once() -> None:
    announce()


def exit_with(code: object) -> None:
    announce()
    sys.exit(code)  # pyright: ignore[reportArgumentType]


def wait_for(what: str) -> None:
    """Waits as a role would for another one, until it is stopped."""
    with lifecycle.waiting(what):
        serve()


def ignore_stop() -> None:
    announce()
    threading.Event().wait()


def hold_gil() -> None:
    """Never releases it; a signal does not end the read."""
    announce()
    ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)


def work_at(gate: str, timeout_s: float) -> None:
    """Does one piece of work under a time limit until the test opens the gate."""
    limit = lifecycle.Limit(timeout_s)
    limit.begin("the work")
    wait_at(gate)
    limit.end()


def linger() -> None:
    """Returns, but leaves a thread that keeps the process alive."""
    announce()
    threading.Thread(target=threading.Event().wait).start()


def fail_and_linger(text: str) -> None:
    """Fails, but leaves a thread that keeps the process alive, and says so when the failure has been told."""

    def wait() -> None:
        threading.main_thread().join()
        log.info("lingering")
        threading.Event().wait()

    announce()
    threading.Thread(target=wait).start()
    raise ValueError(text)


def start_descendants(then: str = "serve") -> None:
    """Has a child without the supervisor's mark, one in a session of its own, and a fork that exits on its own."""
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    near = subprocess.Popen(command, env={"DREAMFLEET_TEST": os.environ["DREAMFLEET_TEST"]})
    far = subprocess.Popen(command, start_new_session=True)
    announce(f"descendants {near.pid} {far.pid}")
    if then == "serve":
        lifecycle.wait_stop()
    elif then == "hang":
        threading.Event().wait()


def log_and_serve() -> None:
    log.debug("too small to forward")
    log.warning("careful: %s", "ü" * 3)
    logging.getLogger("elsewhere").warning("not ours")
    print("printed")
    serve()


def draw() -> None:
    log.info("drew %s %s", random.random(), np.random.random())
    serve()


def look_around() -> None:
    log.info("cwd=%s variable=%s stdin=%r", Path.cwd(), os.environ.get("A_VARIABLE"), sys.stdin.read())
    log.info("group=%s session=%s", os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid())
    serve()


def fail_in_thread(text: str) -> None:
    """Serves, while a thread of the role fails."""
    lifecycle.spawn(fail, text, name="worker")
    serve()


def fail_in_thread_and_hang(text: str) -> None:
    """Does not notice that a thread of the role failed."""
    lifecycle.spawn(fail, text, name="worker")
    ignore_stop()


def fail_in_thread_and_raise(text: str) -> None:
    """Fails itself with something else because a thread failed."""
    lifecycle.spawn(fail, text, name="worker")
    lifecycle.wait_stop()
    raise KeyError("because of that")


def lose_own_threads(text: str) -> None:
    """As the code of a user may, which starts threads by itself."""
    for _ in range(3):
        thread = threading.Thread(target=fail, args=(text,), name="theirs")
        thread.start()
        thread.join()
    serve()
