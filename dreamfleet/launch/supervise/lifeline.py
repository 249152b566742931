"""The socket between the supervisor and one child: its messages, and the thread that serves it in the child.

Each direction carries small JSON packets (SOCK_SEQPACKET: a packet arrives whole or not at all). The first one to the
child brings the pickled target in a memory file, so that the supervisor never waits for a child to read it.
"""

import contextlib
import faulthandler
import fcntl
import json
import logging
import os
import resource
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from dreamfleet import lifecycle
from dreamfleet.base.tracebacks import own_frames, summarize
from dreamfleet.errors import ConfigError, Refused
from dreamfleet.launch.supervise.process_tree import kill_marked
from dreamfleet.launch.supervise.watchdog import end_with_parent, show_stacks_on_signal

HEARTBEAT_S = 1.0
ORPHAN_GRACE_S = 5.0  # for a role to stop by itself after its supervisor is gone
OUTCOME_TIMEOUT_S = 5.0  # the last message may wait this long for room in the socket; heartbeats and logs do not wait
MAX_PACKET = 1 << 18
MAX_TEXT = 10_000  # characters; a packet has to fit the socket buffer even when every one of them is escaped
MAX_WAITS = 8

log = logging.getLogger("dreamfleet.launch")


def make_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a lifeline, non-blocking."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
    return ends


def encode(message: dict) -> bytes:
    return json.dumps(message).encode()


def send_order(end: socket.socket, order: dict, payload: bytes) -> None:
    """Sends what the child is to do; `payload` is the pickled call."""
    memory = os.memfd_create("dreamfleet-payload")
    try:
        with os.fdopen(memory, "wb", closefd=False) as file:
            file.write(payload)
        socket.send_fds(end, [encode(order)], [memory])
    finally:
        os.close(memory)


def receive_order(end: socket.socket) -> tuple[dict, bytes]:
    """The child's side of `send_order`, which was called before the child started; EOFError if nothing is there."""
    data, files, _, _ = socket.recv_fds(end, MAX_PACKET, 1)
    if not data:
        raise EOFError("the supervisor closed the lifeline before it sent an order")
    with os.fdopen(files[0], "rb") as file:
        file.seek(0)  # the offset is shared with the writer
        return json.loads(data), file.read()


def receive_messages(end: socket.socket) -> tuple[list[dict], bool]:
    """All messages that wait in the socket, and whether the other side may still send more."""
    messages = []
    while True:
        try:
            data = end.recv(MAX_PACKET)
        except BlockingIOError:
            return messages, True
        except OSError:
            return messages, False
        if not data:
            return messages, False
        messages.append(json.loads(data))


def make_heartbeat() -> dict:
    """What this process is doing."""
    waits = [{**wait, "what": wait["what"][:200]} for wait in lifecycle.waits(older_than_s=0.5)]
    return {
        "kind": "heartbeat",
        "state": lifecycle.state(),
        "has_progressed": lifecycle.has_progressed(),
        "stop_reason": lifecycle.stop_reason(),
        "beat_age_s": round(lifecycle.beat_age_s(), 1),
        "waits": waits[:MAX_WAITS],
        "figures": lifecycle.figures(),
        "cpu_s": time.process_time(),
        "memory_mb": resident_mb(),
    }


def resident_mb() -> float | None:
    """Memory of this process."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None  # not on this system
    return round(pages * resource.getpagesize() / 2**20, 1)


def run_to_end(call: Callable[[], None], report: Callable[[dict], None]) -> bool:
    """Runs a role; `report` gets the one message of how it ended. Returns whether it failed.

    What a thread of the role fails with is reported at once, as the role may never return.
    """
    lifecycle.on_failure(lambda error: report(describe_failure(error)))
    outcome = {"kind": "done"}
    try:
        call()
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            outcome = describe_failure(error)
    if lifecycle.failure():  # came first; an error of the call may be due to it
        return True
    report({**outcome, "state": lifecycle.state()})
    return outcome["kind"] == "failure"


def describe_failure(error: BaseException) -> dict:
    """The message that reports what a role failed with."""
    return {
        "kind": "failure",
        "summary": summarize(error)[:MAX_TEXT],
        "frames": own_frames(error)[-MAX_TEXT:],
        "traceback": "".join(traceback.format_exception(error))[-MAX_TEXT:],
        "is_fatal": getattr(error, "is_fatal", False),
        "is_refusal": isinstance(error, (ConfigError, Refused)),
        "is_own_fault": getattr(error, "is_own_fault", True),
        "state": lifecycle.state(),
        "at": time.monotonic(),  # comparable between processes: the clock is the machine's
    }


class Lifeline:
    """The child's end: sends heartbeats, handles stop requests, and kills the process tree if the supervisor dies."""

    def __init__(self, end: socket.socket, supervisor: int, token: str):
        self._end = end
        self._supervisor = supervisor
        self._token = token
        self._is_overdue = False  # stacks of the hang are in the log
        self.is_terminated = False  # got SIGTERM: the supervisor is told and decides

    def start(self) -> None:
        """Starts the thread that serves the lifeline until the process ends."""
        end_with_parent()
        show_stacks_on_signal()
        # Whatever comes in continues a stopped process: it has to see the end of its supervisor too.
        fcntl.fcntl(self._end, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._end, fcntl.F_SETSIG, signal.SIGCONT)
        fcntl.fcntl(self._end, fcntl.F_SETFL, fcntl.fcntl(self._end, fcntl.F_GETFL) | os.O_ASYNC)
        # A role that is killed in the same second has been running.
        lifecycle.on_state(lambda: self.send(make_heartbeat()))
        lifecycle.spawn(self._serve, name="lifeline")

    def send(self, message: dict, timeout_s: float = 0.0) -> None:
        """Sends from any thread; drops the message if the supervisor is gone, or does not read within `timeout_s`."""
        data = encode(message)
        with contextlib.suppress(OSError):
            try:
                self._end.send(data)
            except BlockingIOError:
                if timeout_s:
                    poll = select.poll()
                    poll.register(self._end, select.POLLOUT)
                    poll.poll(timeout_s * 1000)
                    self._end.send(data)

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        # The socket alone would not tell if a fork of the supervisor holds a copy of the other end.
        with contextlib.suppress(ProcessLookupError):
            poll.register(os.pidfd_open(self._supervisor), select.POLLIN)
        next_beat = time.monotonic()
        while os.getppid() == self._supervisor:
            remaining_s = next_beat - time.monotonic()
            if remaining_s <= 0:
                self._beat()
                next_beat = time.monotonic() + HEARTBEAT_S
            elif poll.poll(remaining_s * 1000):
                messages, is_open = receive_messages(self._end)
                if any(message["kind"] == "stop" for message in messages):
                    lifecycle.stop_soon()
                if not is_open:
                    break
        self._exit_as_orphan()

    def _beat(self) -> None:
        overdue = lifecycle.overdue()
        if overdue and not self._is_overdue:
            self._is_overdue = True
            faulthandler.dump_traceback(file=2)
        self.send({**make_heartbeat(), "is_terminated": self.is_terminated, "overdue": overdue})

    def _exit_as_orphan(self) -> None:
        log.warning("the supervisor has exited, stopping")
        lifecycle.note_orphaned()
        lifecycle.stop_soon()
        threading.Event().wait(ORPHAN_GRACE_S)  # cut short by the end of the process
        log.warning("did not stop within %g s: killing", ORPHAN_GRACE_S)
        kill_marked(self._token)
        os.killpg(0, signal.SIGKILL)  # this process too, so it comes last


class ForwardLogs(logging.Handler):
    """Sends log records to the supervisor."""

    def __init__(self, lifeline: Lifeline):
        super().__init__(logging.INFO)
        self._lifeline = lifeline

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and (error := record.exc_info[1]):  # the whole traceback is in the role's own log
            text = f"{text}: {summarize(error)}\n{own_frames(error)}".rstrip()
        text = text[:MAX_TEXT]
        self._lifeline.send({"kind": "log", "level": record.levelname.lower(), "text": text})
