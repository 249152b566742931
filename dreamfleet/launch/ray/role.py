"""One incarnation of a role in a Ray cluster, as the supervisor sees it.

One question to its relay is always under way, which is answered when the role has said something.
"""

import contextlib
import queue
import selectors
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError

from dreamfleet.base import waits

RETRY_S = 1.0  # between questions to a relay that cannot be reached
KILL_S = 10.0  # for a relay to tell that the role has ended, before it is taken for lost


class RayRole:
    """A role behind the methods of `RoleHandle`; `actor` is its relay, and `explain` says why that has died."""

    def __init__(self, actor: Any, log_file: Path, wake: Callable[[], None], explain: Callable[[Exception], dict]):
        self.pid: int | None = None
        self.host = ""
        self.lost_at: float | None = None
        self._actor, self._log_file, self._wake, self._explain = actor, log_file, wake, explain
        self._answers: queue.SimpleQueue = queue.SimpleQueue()  # filled by threads of Ray
        self._messages: list[dict] = []
        self._exit_code: int | None = None
        self._started_at = time.monotonic()
        self._lost_by: float | None = None  # after a kill
        self._is_asked = False
        self._ask_at = 0.0
        self._ask()

    def watch(self, selector: selectors.BaseSelector, data: object) -> None:
        """Nothing to register: answers wake the supervisor."""

    def receive(self) -> list[dict]:
        messages, self._messages = self._messages, []
        if self.pid is None:
            messages.append(self._make_heartbeat())
        return messages

    def poll_exit(self) -> int | None:
        while not self._answers.empty():
            self._read(self._answers.get())
        if self._exit_code is None and self._lost_by is not None and time.monotonic() > self._lost_by:
            self._exit_code = -signal.SIGKILL
        if self._exit_code is None and not self._is_asked and time.monotonic() >= self._ask_at:
            self._ask()
        return self._exit_code

    def wait_exit(self, timeout_s: float) -> int | None:
        deadline = time.monotonic() + timeout_s
        while self.poll_exit() is None and (left_s := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self._read(self._answers.get(timeout=min(left_s, 1.0)))
        return self._exit_code

    def stop(self) -> None:
        self._call("stop")

    def show_stacks(self) -> None:
        self._call("show_stacks")

    def kill(self) -> None:
        self._lost_by = time.monotonic() + (0.0 if self.pid is None else KILL_S)
        self._call("kill")

    def close(self) -> None:
        if ray.is_initialized():  # else this would start a cluster
            with contextlib.suppress(Exception):  # it is gone, or Ray is
                ray.kill(self._actor)

    def _ask(self) -> None:
        self._is_asked = True
        self._call("next", self._answers.put)

    def _call(self, method: str, then: Callable[[Any], None] = lambda future: future.exception()) -> None:
        """Calls the relay; `then` gets the future, in a thread of Ray."""

        def answer(future: Any) -> None:
            then(future)
            self._wake()

        try:
            future = getattr(self._actor, method).remote().future()
        except Exception as error:  # Ray itself is gone
            future = Future()
            future.set_exception(error)
        future.add_done_callback(answer)

    def _read(self, answer: Any) -> None:
        self._is_asked = False
        try:
            messages, self._exit_code = answer.result()
        except ActorUnavailableError:  # asked again, until it answers or is known to have died
            self._ask_at = time.monotonic() + RETRY_S
            return
        except Exception as error:
            self._messages.append(self._explain(error))
            self._exit_code = 1
            return
        self._messages += filter(None, map(self._take, messages))

    def _take(self, message: dict) -> dict | None:
        """What of a message is for the supervisor."""
        if message["kind"] == "started":
            self.pid, self.host = message["pid"], message["host"]
            return None
        if message["kind"] == "output":
            with contextlib.suppress(OSError), self._log_file.open("ab") as file:  # as if it printed to a full disk
                file.write(message["data"])
            return None
        # Clocks of other machines cannot be compared.
        return {**message, "at": time.monotonic()} if "at" in message else message

    def _make_heartbeat(self) -> dict:
        """What there is to say of a role that Ray has not started yet."""
        wait = {"what": waits.RAY_PLACE(), "seconds": round(time.monotonic() - self._started_at, 1), "share": 1.0}
        quiet = {"has_progressed": False, "beat_age_s": 0.0, "figures": {}, "cpu_s": 0.0, "memory_mb": None}
        return {"kind": "heartbeat", "state": "starting", "waits": [wait], **quiet}
