"""What runs in the Ray worker of a role: starts the role's process on that node, and passes on what it says.

Ray calls the methods, each in a thread of its own. Nothing of Ray is imported here, nor in the role's process.
"""

import dataclasses
import os
import selectors
import socket
import sys
import threading
from pathlib import Path

from dreamfleet.launch.supervise.process import Launch, RoleProcess
from dreamfleet.launch.supervise.process_tree import kill_lives

ANSWER_S = 5.0  # a question is answered at the latest
OUTPUT_BYTES = 1 << 16  # in one message
MOST_MESSAGES = 1000  # that wait for the driver; the oldest are dropped


class Relay:
    """One life of a role."""

    def __init__(self, launch: Launch):
        self._changed = threading.Condition()
        self._messages: list[dict] = []
        self._exit_code: int | None = None
        self._process: RoleProcess | None = None
        # The role ends with the thread that started it: one of its own, as those of Ray come and go.
        threading.Thread(target=self._run, args=(launch,), name="relay", daemon=True).start()

    def next(self) -> tuple[list[dict], int | None]:
        """Waits for messages of the role, and returns them and its exit code."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._exit_code is not None, ANSWER_S)
            messages, self._messages = self._messages, []
            return messages, self._exit_code

    def stop(self) -> None:
        """Asks the role to return."""
        if process := self._process:
            process.stop()

    def show_stacks(self) -> None:
        """Has the role write its stacks to its log."""
        if process := self._process:
            process.show_stacks()

    def kill(self) -> None:
        """Ends the role and everything that it started."""
        with self._changed:
            if self._process and self._exit_code is None:
                self._process.kill()

    def _run(self, launch: Launch) -> None:
        # If the worker of an earlier life was killed, its process would linger for a while.
        kill_lives(launch.token)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        try:
            process = RoleProcess(settle(launch), writer)
        except OSError as error:
            self._tell([{"kind": "output", "data": f"failed to start: {error}\n".encode()}], 1)
            return
        finally:
            os.close(writer)
        with self._changed:
            self._process = process
        self._tell([{"kind": "started", "pid": process.pid, "host": socket.gethostname()}])
        with selectors.DefaultSelector() as selector, os.fdopen(reader, "rb", 0) as output:
            process.watch(selector, None)
            selector.register(output, selectors.EVENT_READ, output)
            while self._exit_code is None:
                ready = [key.data for key, _ in selector.select()]
                with self._changed:  # nobody kills a process that is being reaped
                    code = process.poll_exit()
                data = output.read(OUTPUT_BYTES) if output in ready or code is not None else None
                if data == b"" and code is None:  # closed by the role: it would stay readable for ever
                    selector.unregister(output)
                printed = [{"kind": "output", "data": data}] if data else []
                self._tell([*printed, *process.receive()], code)
            process.close()

    def _tell(self, messages: list[dict], exit_code: int | None = None) -> None:
        with self._changed:
            self._messages = (self._messages + messages)[-MOST_MESSAGES:]
            self._exit_code = exit_code
            self._changed.notify_all()


def settle(launch: Launch) -> Launch:
    """The launch with paths of this node: where the driver's directory is not there, Ray may have put a copy.

    What is found on this node only, such as another place of the installed packages, comes after the driver's own.
    """
    there, here = launch.order["cwd"], str(Path.cwd())
    cwd = there if Path(there).is_dir() else here

    def move(path: str) -> str:
        return cwd + path.removeprefix(there) if path == there or path.startswith(f"{there}/") else path

    path = dict.fromkeys([*map(move, launch.order["path"]), *sys.path])
    return dataclasses.replace(launch, order={**launch.order, "cwd": cwd, "path": list(path)})
