"""The core of the local launcher: runs a fleet, shuts it down in order, and leaves no process behind."""

import contextlib
import itertools
import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cloudpickle

from dreamfleet.errors import ConfigError, RunFailed, RunRefused
from dreamfleet.launch.supervise.fleet import Fleet
from dreamfleet.launch.supervise.role_record import EXIT_GRACE_S, RoleRecord
from dreamfleet.launch.topology import RoleSpec

OTHERS_GRACE_S = 5.0  # for roles beside the main one to stop

log = logging.getLogger("dreamfleet.launch")


class Supervisor:
    """Runs the roles until the main one returns, a stop is requested, or one of them fails for good.

    `on_log(role, level, text)` gets what the roles log and what happens to them; `on_status` the contents of
    `status.json`, every second. Both are called in the thread of `run`.
    """

    def __init__(
        self,
        specs: Sequence[RoleSpec],
        logdir: Path | str,
        *,
        heartbeat_timeout_s: float = 60.0,
        stop_grace_s: float = 30.0,
        others_grace_s: float = OTHERS_GRACE_S,
        exit_grace_s: float = EXIT_GRACE_S,
        on_log: Callable[[str, str, str], None] | None = None,
        on_status: Callable[[dict], None] | None = None,
    ):
        names = [spec.name for spec in specs]
        assert len(set(names)) == len(names) and all(re.fullmatch(r"[\w.-]+", name) for name in names), names
        self._logdir = Path(logdir)
        self._roles = [
            RoleRecord(spec, _pickle(spec), self._logdir / f"logs/{spec.name}.log", exit_grace_s) for spec in specs
        ]
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._stop_grace_s, self._others_grace_s = stop_grace_s, others_grace_s
        self._on_log = on_log or _log
        self._on_status = on_status
        self._requests: list[str] = []
        self._fleet: Fleet | None = None

    @property
    def stop_reason(self) -> str | None:
        """The reason of the first stop that was requested, if any."""
        return self._requests[0] if self._requests else None

    def request_stop(self, reason: str) -> None:
        """Asks for an orderly stop, or while stopping for an immediate one; safe in threads and signal handlers."""
        self._requests.append(reason)
        if self._fleet:
            self._fleet.wake()

    @contextlib.contextmanager
    def install_signals(self) -> Iterator[None]:
        """Lets SIGINT and SIGTERM request a stop inside the block; does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, _) -> None:
            self.request_stop(signal.Signals(number).name)

        previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler or signal.SIG_DFL)

    def run(self) -> None:
        """Runs the fleet; returns when it is complete or was stopped, and raises RunFailed with the first cause.

        It is a RunRefused if a role could not start with its settings.
        """
        (self._logdir / "logs").mkdir(parents=True, exist_ok=True)
        fleet = Fleet(self._roles, self._logdir, self._heartbeat_timeout_s, self._on_log, self._on_status)
        self._fleet = fleet
        end_state = "failed"
        try:
            for role in fleet.roles:
                fleet.start(role)
            while not (self._requests or fleet.is_complete or fleet.fatal):
                fleet.step()
            self._shut_down(fleet)
            end_state = "failed" if fleet.fatal else "done"
        finally:
            fleet.end()
            fleet.close()
            fleet.state = end_state
            fleet.publish()
        if fleet.fatal:
            raise (RunRefused if fleet.fatal.is_refusal else RunFailed)(fleet.explain())

    def _shut_down(self, fleet: Fleet) -> None:
        """Stops the main role, which may need the others for its checkpoint, and then the others."""
        answered = len(self._requests)
        reason = "a role failed" if fleet.fatal else "run finished" if fleet.is_complete else self.stop_reason
        self._on_log("supervisor", "info", f"stopping: {reason}")
        fleet.state = "stopping"
        for role in fleet.roles:
            if role.restart_at is not None:
                role.restart_at = None
                role.set_state("dead")
        for grace_s, group in self._group_by_stop_order(fleet.roles):
            for role in group:
                fleet.stop(role)
            deadline = time.monotonic() + grace_s
            while any(role.life for role in group) and time.monotonic() < deadline:
                fleet.step(deadline)
                if len(self._requests) > answered:
                    self._on_log("supervisor", "warning", f"{self._requests[-1]} while stopping: killing all roles")
                    return
            for role in group:
                if role.life:
                    self._on_log(role.spec.name, "warning", f"did not stop within {grace_s:g} s: killing it")
                    fleet.kill(role, f"did not stop within {grace_s:g} s")

    def _group_by_stop_order(self, roles: list[RoleRecord]) -> Iterator[tuple[float, list[RoleRecord]]]:
        """The roles that are stopped together, and how long they get."""

        def order(role: RoleRecord) -> tuple[bool, int]:
            return not role.spec.is_main, role.spec.stop_order

        for (is_other, _), members in itertools.groupby(sorted(roles, key=order), order):
            group = list(members)
            least_s = self._others_grace_s if is_other else self._stop_grace_s
            yield max(least_s, *(role.spec.stop_grace_s for role in group)), [role for role in group if role.life]


def _pickle(spec: RoleSpec) -> bytes:
    if spec.in_thread:
        return b""
    try:
        return cloudpickle.dumps((spec.target, spec.args, spec.kwargs))
    except Exception as error:
        reason = f"cannot be sent to its process ({type(error).__name__}: {error})"
        remedy = "create what cannot be pickled inside the function instead of using it from outside"
        raise ConfigError(f"role {spec.name}: target", spec.target, reason, remedy) from error


def _log(role: str, level: str, text: str) -> None:
    log.log(logging.getLevelNamesMapping().get(level.upper(), logging.INFO), "%s: %s", role, text)
