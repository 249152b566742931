"""One incarnation of a role, as a process or as a thread, behind the same few methods. The supervisor owns them."""

import contextlib
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import dreamfleet
from dreamfleet import lifecycle
from dreamfleet.base.seeds import derive_seed
from dreamfleet.launch.supervise import lifeline
from dreamfleet.launch.supervise.process_tree import TOKEN_VARIABLE, kill_tree
from dreamfleet.launch.supervise.watchdog import SHOW_STACKS
from dreamfleet.launch.topology import RoleSpec, load_target

PACKAGE_ROOT = Path(dreamfleet.__file__).parents[1]


class RoleHandle(Protocol):
    """What the supervisor does with one incarnation of a role, wherever it runs.

    Nothing here ever blocks the supervisor, except `wait_exit`, which has a deadline.
    """

    @property
    def pid(self) -> int | None:
        """That of its process, once it is known."""
        ...

    @property
    def host(self) -> str:
        """Where that is, if not on this machine."""
        ...

    @property
    def lost_at(self) -> float | None:
        """When its lifeline ended, on the monotonic clock."""
        ...

    def watch(self, selector: selectors.BaseSelector, data: object) -> None:
        """Registers what becomes readable when there is something to `receive` or the role has ended."""
        ...

    def receive(self) -> list[dict]:
        """The messages that came in since the last call."""
        ...

    def poll_exit(self) -> int | None:
        """The exit code once the role has ended, negative for a signal."""
        ...

    def wait_exit(self, timeout_s: float) -> int | None:
        """Like `poll_exit`, but waits."""
        ...

    def stop(self) -> None:
        """Asks the role to return."""
        ...

    def show_stacks(self) -> None:
        """Has a role that does not react write its stacks to its log; only before a kill."""
        ...

    def kill(self) -> None:
        """Ends the role and everything that it started."""
        ...

    def close(self) -> None:
        """Lets go of what has ended."""
        ...


@dataclass(frozen=True)
class Launch:
    """One life of a role as it is to be started, here or on another machine."""

    order: dict  # to the child, but for its payload
    payload: bytes  # the pickled call
    token: str  # that marks its processes
    environ: dict[str, str]
    secrets: dict[str, bytes] = field(default_factory=dict)  # by variable that names a file, for this process alone


def make_launch(spec: RoleSpec, payload: bytes, incarnation: int, run_id: str) -> Launch:
    """A life with the path and the directory of this process."""
    order = {
        "name": spec.name,
        "incarnation": incarnation,
        "seed": derive_seed(spec.seed, spec.name, 0, incarnation),
        "path": sys.path,
        "cwd": str(Path.cwd()),
    }
    return Launch(order, payload, f"{run_id}/{spec.name}/{incarnation}", spec.environ)


# Starts a life of a role, which prints to the file; the last argument wakes the supervisor, from any thread.
StartRole = Callable[[RoleSpec, Launch, Path, Callable[[], None]], RoleHandle]


def start_here(spec: RoleSpec, launch: Launch, log_file: Path, wake: Callable[[], None]) -> RoleHandle:
    """Starts a role on this machine."""
    if spec.in_thread:
        return RoleThread(spec, launch.order["incarnation"], wake)
    with log_file.open("ab") as output:
        return RoleProcess(launch, output)


class RoleProcess:
    """A role in a process of its own, which leads a session and process group of its own."""

    host = ""

    def __init__(self, launch: Launch, output: IO[bytes] | int):
        self._token = launch.token
        self._end, child_end = lifeline.make_pair()
        try:
            with child_end:
                lifeline.send_order(self._end, {**launch.order, "supervisor": os.getpid()}, launch.payload)
                self._popen = self._start(child_end.fileno(), launch, output)
        except BaseException:
            self._end.close()
            raise
        self.pid = self._popen.pid
        self.lost_at: float | None = None  # when the lifeline ended
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            self.kill()
            self._popen.wait()
            self._end.close()
            raise

    def _start(self, fd: int, launch: Launch, output: IO[bytes] | int) -> subprocess.Popen:
        with contextlib.ExitStack() as stack:
            files = {name: stack.enter_context(_memory_file(content)) for name, content in launch.secrets.items()}
            secrets = {name: f"/proc/self/fd/{file}" for name, file in files.items()}
            return subprocess.Popen(
                [sys.executable, "-m", "dreamfleet.launch.child", str(fd)],
                # So that -m finds this very package and nothing of the user's; the child goes to the user's directory
                # afterwards.
                cwd=PACKAGE_ROOT,
                env={**os.environ, **launch.environ, **secrets, TOKEN_VARIABLE: self._token},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[fd, *files.values()],
                # Ctrl-C in the terminal does not reach it, and killing the group ends its descendants.
                start_new_session=True,
            )

    def watch(self, selector: selectors.BaseSelector, data: object) -> None:
        self._selector = selector
        selector.register(self._end, selectors.EVENT_READ, data)
        # A descendant may hold a copy of the lifeline's other end, so its end alone would not tell.
        selector.register(self._pidfd, selectors.EVENT_READ, data)

    def receive(self) -> list[dict]:
        if self.lost_at is not None:
            return []
        messages, is_open = lifeline.receive_messages(self._end)
        if not is_open:
            self.lost_at = time.monotonic()
            self._selector.unregister(self._end)  # it would stay readable for ever
        return messages

    def poll_exit(self) -> int | None:
        """The exit code once the process has ended, negative for a signal; what it left running is killed then."""
        if os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        kill_tree(self.pid, self._token)
        return self._popen.wait()

    def wait_exit(self, timeout_s: float) -> int | None:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.poll(timeout_s * 1000)
        return self.poll_exit()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._end.send(lifeline.encode({"kind": "stop"}))

    def show_stacks(self) -> None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, SHOW_STACKS)

    def kill(self) -> None:
        """Ends the process and everything that it started, also while it is stopped by SIGSTOP."""
        if self._popen.returncode is None:
            kill_tree(self.pid, self._token)

    def close(self) -> None:
        """Lets go of the lifeline and of the process, which has ended."""
        if self.lost_at is None:
            self._selector.unregister(self._end)
        self._selector.unregister(self._pidfd)
        self._end.close()
        os.close(self._pidfd)


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    """A file that is in no directory and that only its user may read."""
    file = os.memfd_create("dreamfleet-secret")
    try:
        os.fchmod(file, 0o600)
        os.write(file, content)
        yield file
    finally:
        os.close(file)


class RoleThread:
    """A role in a daemon thread of the supervisor's process; `wake` is called when it ends."""

    host = ""

    def __init__(self, spec: RoleSpec, incarnation: int, wake: Callable[[], None]):
        self.pid = os.getpid()
        self._spec = spec
        self._wake = wake
        self.lost_at = None
        self._outcomes: deque[dict] = deque()
        self._exit_code: int | None = None
        lifecycle.reset()
        lifecycle.set_incarnation(incarnation)
        self._thread = threading.Thread(target=self._run, name=spec.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        def call() -> None:
            load_target(self._spec.target)(*self._spec.args, **self._spec.kwargs)

        has_failed = lifeline.run_to_end(call, self._report)
        if self._exit_code is None:
            self._exit_code = int(has_failed)
        self._wake()

    def _report(self, outcome: dict) -> None:
        self._outcomes.append(outcome)
        self._wake()

    def watch(self, selector: selectors.BaseSelector, data: object) -> None:
        """Nothing to register: the thread wakes the supervisor itself."""

    def receive(self) -> list[dict]:
        messages = [lifeline.make_heartbeat()]
        while self._outcomes:
            messages.append(self._outcomes.popleft())
        return messages

    def poll_exit(self) -> int | None:
        return self._exit_code

    def wait_exit(self, timeout_s: float) -> int | None:
        """Does not wait: a thread that has not ended by the time it is killed is left behind."""
        return self._exit_code

    def stop(self) -> None:
        lifecycle.stop_soon()

    def show_stacks(self) -> None:
        """Nothing to do: the heartbeat of a thread is made by the supervisor itself."""

    def kill(self) -> None:
        """A thread cannot be killed: asks it to stop, and leaves it behind."""
        lifecycle.stop_soon()
        if self._exit_code is None:
            self._exit_code = -signal.SIGKILL
        self._wake()

    def close(self) -> None:
        """Nothing to let go of."""
