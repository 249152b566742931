"""Tells a run how the roles do that have joined it from here: the `status` of this machine, for the trainer's own.

All of it happens in a thread of its own and may fail: the roles never wait for it.
"""

import contextlib
import dataclasses
import itertools
import logging
import os
import threading
import uuid
from collections import deque
from pathlib import Path
from typing import Any, Self

from dreamfleet import lifecycle, rpc
from dreamfleet.base.addresses import AUTO
from dreamfleet.base.joined import ENDED
from dreamfleet.base.text import cut, printable
from dreamfleet.errors import Closed, DeadlineExceeded, Disconnected
from dreamfleet.launch.machines import to_message
from dreamfleet.launch.supervise.role_record import Cause
from dreamfleet.options import RoleOptions
from dreamfleet.roles.hello import owner_of, read_run
from dreamfleet.roles.protocol import (
    LAST_LINES,
    LINE_BYTES,
    REASON_BYTES,
    STATUS,
    STATUS_BYTES,
    STATUS_FAILURES,
    MachineStatus,
    RoleFailure,
)
from dreamfleet.roles.wiring import connect

log = logging.getLogger("dreamfleet.launch")

EVERY_S = 2.0
ANSWER_S = 10.0
AGAIN_S = 60.0  # after a refusal: of a trainer that is over, or knows no `status`
FAREWELL_S = 1.0  # for the last status, once the roles have ended
MOST_FAILURES = 16  # that wait to be told; of more, the oldest are dropped


class Reporter:
    """Sends what the supervisor says of its roles: `update` with each status, `add_failure` when a role died."""

    def __init__(self, options: RoleOptions, directory: Path):
        self._options = options
        self._facts: dict[str, Any] = {
            "owner": owner_of(options),
            "session": uuid.uuid4().hex,
            "name": directory.name,
        }
        self._changed = threading.Condition()
        self._status: dict[str, Any] | None = None
        self._failures: deque[RoleFailure] = deque(maxlen=MOST_FAILURES)
        self._numbers = itertools.count()
        self._is_urgent = self._is_closing = False
        self._client: rpc.Client | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if AUTO not in self._options.address("actor"):  # a replay may have joined without knowing where it is
            self._thread = lifecycle.spawn(self._run, name="reporting")
        return self

    def __exit__(self, *_: object) -> None:
        """Sends the last status, if somebody is there to take it."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread:
            self._thread.join(FAREWELL_S)
            if client := self._client:
                client.close()
            self._thread.join(FAREWELL_S)

    def update(self, status: dict[str, Any]) -> None:
        with self._changed:
            self._status = status
            self._hurry(status["state"] in ENDED)

    def add_failure(self, cause: Cause, log_file: Path) -> None:
        reason, lines = cut(printable(cause.what), REASON_BYTES), read_last_lines(log_file)
        with self._changed:
            self._failures.append(RoleFailure(next(self._numbers), cut(cause.role, 64), reason, lines))
            self._hurry()

    def _hurry(self, is_urgent: bool = True) -> None:
        self._is_urgent |= is_urgent
        if self._is_urgent:
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._is_closing:
            try:
                # Without environments, as somebody who has yet to ask for their numbers.
                with connect(self._options, "actor", "status", me="env", ends=True, is_quiet=True) as self._client:
                    self._send_over(self._client)
            except Exception as error:  # whatever it is, the roles go on
                log.debug("the run does not take the status: %s", error)
            self._wait(AGAIN_S, is_cut_short=False)

    def _send_over(self, client: rpc.Client) -> None:
        """Sends until the end, or until it is refused."""
        while True:
            is_last = self._wait(EVERY_S)
            if client.wait_connected(0.0) and not client.is_plain:
                with contextlib.suppress(Disconnected, DeadlineExceeded, Closed):
                    self._send(client)
            if is_last:
                return

    def _send(self, client: rpc.Client) -> None:
        if report := self._make():
            client.call(STATUS, report.to_data(), repeat=False, deadline_s=ANSWER_S).result()
            with self._changed:
                for failure in report.failures:
                    if failure in self._failures:
                        self._failures.remove(failure)
                self._is_urgent |= bool(self._failures)

    def _make(self) -> MachineStatus | None:
        with self._changed:
            status, failures = self._status, tuple(itertools.islice(self._failures, STATUS_FAILURES))
        if not status:
            return None
        report = to_message(status, **self._facts, run=read_run(self._options.logdir))
        return fit(dataclasses.replace(report, failures=failures))

    def _wait(self, timeout_s: float, is_cut_short: bool = True) -> bool:
        """Waits for the next time to send, or for something urgent; returns whether it is the last time."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or (is_cut_short and self._is_urgent), timeout_s)
            self._is_urgent &= not is_cut_short
            return self._is_closing


def fit(report: MachineStatus) -> MachineStatus:
    """The report without the roles, and then the lines, that are too much for a message."""
    while report.roles and report.count_bytes() > STATUS_BYTES:
        roles = dict(itertools.islice(report.roles.items(), len(report.roles) // 2))
        report = dataclasses.replace(report, roles=roles)
    if report.count_bytes() > STATUS_BYTES:
        failures = tuple(dataclasses.replace(failure, lines=()) for failure in report.failures)
        report = dataclasses.replace(report, failures=failures)
    return report


def read_last_lines(path: Path) -> tuple[str, ...]:
    """The end of a log, as far as it can be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4 * LAST_LINES * LINE_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    lines = [line for line in map(printable, text.splitlines()) if line.strip()]
    return tuple(cut(line, LINE_BYTES) for line in lines[-LAST_LINES:])
