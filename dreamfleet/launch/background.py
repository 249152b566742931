"""A run in the background of a user's script: its launcher is a process of its own, tied to the script by a socket.

`python -m dreamfleet.launch.background FD` is that process. It stops the run in order when the script asks it to, and
when the script is gone. The user's `__main__` is not run again.
"""

import contextlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from dreamfleet.base import pickles
from dreamfleet.errors import DreamfleetError, RunFailed
from dreamfleet.launch.outcome import STOPPED, Outcome
from dreamfleet.launch.supervise.lifeline import MAX_PACKET, MAX_TEXT, make_pair, receive_order, send_order
from dreamfleet.launch.supervise.process import PACKAGE_ROOT
from dreamfleet.launch.supervise.role_record import describe_exit

EXIT_S = 10.0  # from the end of the run to the end of the launcher's process


class BackgroundRun:
    """The script's side: `call(*args)` is made in the launcher's process, and is a run from its start to its end.

    A stop in order takes at most `stop_s`. If the script is lost, the run is stopped in order, or else ends at once.
    """

    def __init__(self, log_file: Path, stop_s: float, call: object, *args: object, stops_in_order: bool = True):
        self.error: BaseException | None = None  # of the run, once it is over
        self.outcome = Outcome(STOPPED)  # of the run, once it is over without an error
        self.stop_s = stop_s
        self.is_over = False
        self.owner = os.getpid()  # the process that may stop it; a fork of it has the same objects
        self._log_file = log_file
        self._end, child_end = make_pair()
        order = {"script": self.owner, "path": sys.path, "cwd": str(Path.cwd())}
        order["alone_s"] = stop_s if stops_in_order else 0.0
        try:
            with child_end:
                send_order(self._end, order, pickles.dumps((call, args)))
                self._popen = self._start(child_end.fileno())
        except BaseException:
            self._end.close()
            raise
        self.pid = self._popen.pid

    def _start(self, fd: int) -> subprocess.Popen:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "dreamfleet.launch.background", str(fd)],
                cwd=PACKAGE_ROOT,  # so that -m finds this very package and nothing of the user's
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[fd],
                start_new_session=True,  # Ctrl-C is for the script, which decides
            )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end of the run, at most so long; returns whether it is over."""
        if self.is_over:
            return True
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        if poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000):
            self._finish()
        return self.is_over

    def request_stop(self) -> None:
        """Asks for an orderly stop."""
        with contextlib.suppress(OSError):  # it is over
            self._end.send(b"stop")

    def kill(self) -> None:
        """Ends the launcher at once; the roles see it and end themselves."""
        if not self.is_over:
            self._popen.kill()
            self.wait()

    def _finish(self) -> None:
        try:
            outcome = self._end.recv(MAX_PACKET)
        except ConnectionError:
            outcome = b""
        try:
            code = self._popen.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait()
        self._end.close()
        self.is_over = True
        if outcome:
            self.error, self.outcome = pickle.loads(outcome)
        elif code:
            self.error = RunFailed(f"the launcher process died: {describe_exit(code)}\nLog file: {self._log_file}")


def main(fd: int) -> int:
    """Makes the call that waits in the socket, and sends back what it raised, or how the run ended."""
    # Before there is a run to stop in order, and after it, a stop just ends this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    end = socket.socket(fileno=fd)
    end.set_inheritable(False)
    order, payload = receive_order(end)
    threading.Thread(target=_watch, args=(end, order["script"], order["alone_s"]), name="script", daemon=True).start()
    error, outcome = None, Outcome(STOPPED)
    try:
        sys.path[:] = order["path"]
        os.chdir(order["cwd"])
        call, args = pickle.loads(payload)
        outcome = call(*args)
    except DreamfleetError as known:
        error = known
    except Exception as unknown:
        import traceback

        error = RunFailed(f"{type(unknown).__name__}: {unknown}\n{traceback.format_exc()}"[:MAX_TEXT])
    with contextlib.suppress(OSError):  # the script is gone
        end.send(pickle.dumps((error, outcome)))
    return int(error is not None)


def _watch(end: socket.socket, script: int, alone_s: float) -> None:
    """Turns what the script says, and its end, into signals that the run understands."""
    poll = select.poll()
    poll.register(end, select.POLLIN)
    # The socket alone would not tell if a fork of the script holds a copy of the other end.
    with contextlib.suppress(ProcessLookupError):
        poll.register(os.pidfd_open(script), select.POLLIN)
    while os.getppid() == script:
        poll.poll()
        if not _is_asked(end):
            break
        _stop()
    if alone_s:
        print("the script has exited, stopping the run", file=sys.stderr, flush=True)
        _stop()
        threading.Event().wait(alone_s)  # cut short by the end of the process
    os.killpg(0, signal.SIGKILL)


def _is_asked(end: socket.socket) -> bool:
    try:
        return bool(end.recv(MAX_PACKET))
    except OSError:  # nothing there: the script ended
        return False


def _stop() -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
