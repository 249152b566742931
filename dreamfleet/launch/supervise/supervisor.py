"""The core of the launchers: runs a fleet, shuts it down in order, and leaves no process behind."""

import contextlib
import itertools
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dreamfleet.base import pickles
from dreamfleet.errors import ConfigError, RunFailed, RunRefused
from dreamfleet.launch.outcome import COMPLETE, FAILED, STOPPED, Outcome, stop_signals
from dreamfleet.launch.supervise.fleet import Fleet
from dreamfleet.launch.supervise.incarnations import Incarnations
from dreamfleet.launch.supervise.process import StartRole, start_here
from dreamfleet.launch.supervise.role_record import EXIT_GRACE_S, Cause, RoleRecord
from dreamfleet.launch.topology import RoleSpec

STOP_GRACE_S = 120.0  # for the main role to stop, with its checkpoint
OTHERS_GRACE_S = 5.0  # for the others
START_GRACE_S = 2.0  # for any that has not started yet, and has nothing to save

log = logging.getLogger("dreamfleet.launch")


class Supervisor:
    """Runs the roles until the main one returns, a stop is requested, or one of them fails for good.

    `on_log(role, level, text)` gets what the roles log and what happens to them; `on_status` the contents of
    `status.json`, every second, to which `describe` may add; `on_death` why a role died, and its log. All are called in
    the thread of `run`. `describe_loss` says what is lost if the roles are killed while they stop. What
    `is_preparation` of a run counts no lives of its roles, and does not make the run complete. `start_role` starts each
    of them, by default on this machine.
    """

    def __init__(
        self,
        specs: Sequence[RoleSpec],
        logdir: Path | str,
        *,
        heartbeat_timeout_s: float = 60.0,
        stop_grace_s: float = STOP_GRACE_S,
        others_grace_s: float = OTHERS_GRACE_S,
        exit_grace_s: float = EXIT_GRACE_S,
        is_preparation: bool = False,
        start_role: StartRole = start_here,
        on_log: Callable[[str, str, str], None] | None = None,
        on_status: Callable[[dict], None] | None = None,
        on_death: Callable[[Cause, Path], None] = lambda *_: None,
        describe: Callable[[], dict] = dict,
        describe_loss: Callable[[], str] = lambda: "nothing is saved",
    ):
        names = [spec.name for spec in specs]
        assert len(set(names)) == len(names) and all(re.fullmatch(r"[\w.-]+", name) for name in names), names
        self._logdir = Path(logdir)
        self._roles = [
            RoleRecord(spec, _pickle(spec), self._logdir / f"logs/{spec.name}.log", exit_grace_s) for spec in specs
        ]
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._stop_grace_s, self._others_grace_s = stop_grace_s, others_grace_s
        self._is_preparation = is_preparation
        self._start_role = start_role
        self._on_log = on_log or _log
        self._on_status = on_status
        self._on_death, self._describe = on_death, describe
        self._describe_loss = describe_loss
        self._interrupts = 0  # by Ctrl-C
        self._fleet: Fleet | None = None
        self.stop_reason = ""  # of the first request to stop

    def request_stop(self, reason: str) -> None:
        """Asks for an orderly stop, once; safe in threads and signal handlers."""
        self.stop_reason = self.stop_reason or reason
        if self._fleet:
            self._fleet.wake()

    def install_signals(self) -> contextlib.AbstractContextManager[None]:
        """Lets SIGINT, SIGTERM and SIGHUP request a stop inside the block; does nothing outside the main thread."""

        def handle(name: str) -> None:
            # Schedulers may repeat the others; only somebody at a keyboard means more by it.
            self._interrupts += name == "SIGINT"
            self.request_stop(name)

        return stop_signals(handle)

    def run(self) -> Outcome:
        """Runs the fleet until it is complete or was stopped, and raises RunFailed with the first cause.

        It is a RunRefused if a role could not start with its settings.
        """
        (self._logdir / "logs").mkdir(parents=True, exist_ok=True)
        incarnations = Incarnations(None if self._is_preparation else self._logdir)
        told = self._on_log, self._on_status, self._on_death, self._describe
        fleet = Fleet(
            self._roles, self._logdir, self._heartbeat_timeout_s, *told, incarnations, start_role=self._start_role
        )
        self._fleet = fleet
        end_state = FAILED
        try:
            for role in fleet.roles:
                fleet.start(role)
            while not (self.stop_reason or fleet.is_complete or fleet.fatal):
                fleet.step()
                self.stop_reason = self.stop_reason or fleet.stop_reason
            is_complete = fleet.is_complete
            self._shut_down(fleet)
            end_state = FAILED if fleet.fatal else COMPLETE if is_complete else STOPPED
        finally:
            fleet.end()
            fleet.close()
            fleet.state = "starting" if self._is_preparation and end_state == COMPLETE else end_state
            fleet.publish()
        if fleet.fatal:
            raise (RunRefused if fleet.fatal.is_refusal else RunFailed)(fleet.explain())
        return Outcome(end_state, self.stop_reason if end_state == STOPPED else "")

    def _shut_down(self, fleet: Fleet) -> None:
        """Stops the main role, which may need the others for its checkpoint, and then the others."""
        interrupts, is_warned = self._interrupts, False
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
            fleet.look()
            deadline = fleet.looked + grace_s - fleet.away_s
            start_by = fleet.looked + START_GRACE_S - fleet.away_s
            while any(role.life for role in group) and fleet.looked < deadline + fleet.away_s:
                fleet.step(deadline + fleet.away_s)
                if fleet.looked >= start_by + fleet.away_s:
                    fleet.kill_unstarted(group)
                if self._interrupts > interrupts + 1:
                    self._on_log("supervisor", "warning", "Ctrl-C again: killing all roles")
                    return
                if self._interrupts > interrupts and not is_warned:
                    is_warned = True
                    self._on_log("supervisor", "warning", f"Ctrl-C again kills at once: {self._describe_loss()}")
            for role in group:
                if role.life:
                    self._on_log(role.spec.name, "warning", f"did not stop within {grace_s:g} s: killing it")
                    fleet.kill(role, f"did not stop within {grace_s:g} s")
                    if role.spec.is_main:
                        fleet.fail(role, f"killed, as it did not stop within {grace_s:g} s: {self._describe_loss()}")

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
        return pickles.dumps((spec.target, spec.args, spec.kwargs))
    except Exception as error:
        reason = f"cannot be sent to its process ({type(error).__name__}: {error})"
        remedy = "create what cannot be pickled inside the function instead of using it from outside"
        raise ConfigError(f"role {spec.name}: target", spec.target, reason, remedy) from error


def _log(role: str, level: str, text: str) -> None:
    log.log(logging.getLevelNamesMapping().get(level.upper(), logging.INFO), "%s: %s", role, text)
