"""The roles of a running fleet: starts them, reads their messages, restarts or gives up on them, kills the rest.

One selector over all lifelines and process descriptors. The supervisor calls `step` in a loop.
"""

import contextlib
import math
import selectors
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from dreamfleet.launch.supervise.incarnations import Incarnations
from dreamfleet.launch.supervise.lifeline import HEARTBEAT_S
from dreamfleet.launch.supervise.process import StartRole, make_launch
from dreamfleet.launch.supervise.role_record import Cause, Incarnation, RoleRecord, Verdict
from dreamfleet.launch.supervise.status import make_status, write_status

TICK_S = 1.0
REAP_S = 10.0  # for a killed process to disappear


class Fleet:
    """All roles of one run. Only `wake` may be called from other threads."""

    def __init__(
        self,
        roles: list[RoleRecord],
        logdir: Path,
        heartbeat_timeout_s: float,
        on_log: Callable[[str, str, str], None],
        on_status: Callable[[dict], None] | None,
        on_death: Callable[[Cause, Path], None],
        describe: Callable[[], dict],
        incarnations: Incarnations,
        start_role: StartRole,
    ):
        self.roles = roles
        self.state = "starting"
        self.is_complete = False  # the main role has returned
        self.fatal: Cause | None = None  # the death that ends the run
        self.stop_reason = ""  # for which a role has asked that the run be stopped
        self._causes: list[Cause] = []  # deaths of roles that have not been stable since
        self._logdir = logdir
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._on_log = on_log
        self._on_status = on_status
        self._on_death, self._describe = on_death, describe
        self._can_write_status = True
        self._incarnations = incarnations
        self._start_role = start_role
        self._run_id = uuid.uuid4().hex
        self._next_tick = 0.0
        self._start = self.looked = time.monotonic()  # the last time that somebody looked at the roles
        self.away_s = 0.0  # time in which nobody looked at the roles; no deadline of theirs counts it
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)

    def wake(self) -> None:
        """Ends the wait in `step`; safe in any thread and in signal handlers."""
        with contextlib.suppress(OSError):  # full: it is awake, or closed: it is over
            self._wake_writer.send(b"\0")

    def start(self, role: RoleRecord) -> None:
        """Starts the next incarnation of a role."""
        role.restart_at = None
        role.set_state("starting")
        launch = make_launch(role.spec, role.payload, self._number_life(role), self._run_id)
        try:
            handle = self._start_role(role.spec, launch, role.log_file, self.wake)
        except OSError as error:
            self._handle_death(role, Cause(role.spec.name, f"failed to start: {error}", "", time.monotonic()))
            return
        role.life = Incarnation(handle, time.monotonic())
        handle.watch(self._selector, role)

    def _number_life(self, role: RoleRecord) -> int:
        incarnation = self._incarnations.first + role.starts
        role.starts += 1
        try:
            self._incarnations.use(incarnation)
        except OSError as error:
            self._on_log("supervisor", "warning", f"a resumed run will repeat seeds, which cannot be kept: {error}")
        return incarnation

    def step(self, until: float = math.inf) -> None:
        """Waits for an event, a due restart, the next tick or `until`, and handles what happened."""
        restarts = [role.restart_at for role in self.roles if role.restart_at is not None]
        wake_at = min(self._next_tick, until, *restarts)
        ready = [key.data for key, _ in self._selector.select(max(0.0, wake_at - time.monotonic()))]
        self.look()
        is_tick = time.monotonic() >= self._next_tick
        is_woken = None in ready
        if is_woken:
            self._wake_reader.recv(4096)
        for role in self.roles:
            # A tick reads all of them, so that a heartbeat that has come in is seen before its age is judged.
            if role.life and (is_tick or is_woken or role in ready):
                self._read(role, role.life)
        for role in self.roles:
            if role.restart_at is not None and time.monotonic() >= role.restart_at:
                self.start(role)
        if is_tick:
            self._next_tick = time.monotonic() + TICK_S
            self._check()
            self.publish()

    def look(self) -> None:
        """Moves the deadlines of the roles by the time that has passed without a look at them.

        This process was stopped, or its machine, and most likely the roles with it: they have to wake up first.
        """
        now = time.monotonic()
        away_s = max(0.0, now - self.looked - TICK_S)
        self.looked, self.away_s = now, self.away_s + away_s
        for life in filter(None, [role.life for role in self.roles]):
            life.last_heartbeat = min(now, life.last_heartbeat + away_s)
            if life.exit_by is not None:
                life.exit_by += away_s

    def stop(self, role: RoleRecord) -> None:
        """Asks a role to return."""
        role.set_state("stopping")
        if role.life:
            role.life.is_asked = True
            role.life.handle.stop()

    def kill(self, role: RoleRecord, reason: str) -> None:
        """Ends a role and everything that it started; `step` sees its exit."""
        if role.life and not role.life.kill_reason:
            role.life.kill_reason = f"killed by the supervisor: {reason}"
            role.life.handle.kill()

    def kill_unstarted(self, group: list[RoleRecord]) -> None:
        """Ends roles that have never run, such as an agent that is still compiling: they have nothing to save."""
        for role in group:
            if role.life and not role.has_run and not role.life.has_progressed and not role.spec.in_thread:
                role.life.is_cut = True
                self.kill(role, "stopped before it had started")

    def fail(self, role: RoleRecord, what: str) -> None:
        """Makes the run one that failed, because of a role that did not do what it had to."""
        if not self.fatal:
            self.fatal = Cause(role.spec.name, what, "", time.monotonic())
            self._causes.append(self.fatal)

    def end(self) -> None:
        """Kills and reaps all remaining processes."""
        for role in self.roles:
            self.kill(role, "run finished")
        for role in self.roles:
            if role.life:
                handle = role.life.handle
                role.on_exit(handle.wait_exit(REAP_S))
                handle.close()
                role.life = None
                role.set_state("dead")

    def close(self) -> None:
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def publish(self) -> None:
        """Writes the status; a full disk does not end the run."""
        status = make_status(self.state, self.roles, time.monotonic() - self._start) | self._describe()
        try:
            write_status(self._logdir, status)
            self._can_write_status = True
        except OSError as error:
            if self._can_write_status:
                self._on_log("supervisor", "warning", f"cannot write status.json: {error}")
            self._can_write_status = False
        if self._on_status:
            self._on_status(status)

    def explain(self) -> str:
        """Why the run failed: the first cause, with its traceback or where to look."""
        assert self.fatal is not None
        if self.fatal.is_refusal:
            return f"{self.fatal.role}: {self.fatal.what.removeprefix('ConfigError: ').removeprefix('Refused: ')}"
        first = min(self._causes, key=lambda cause: cause.at)
        roles = {role.spec.name: role for role in self.roles}
        text = f"{first.role} failed: {first.what}"
        if first.role != self.fatal.role:
            text += f"\nThe run ended when {self.fatal.role} failed after that: {self.fatal.what}"
        if (deaths := roles[self.fatal.role].deaths) > 1:
            text += f"\n{self.fatal.role} died {deaths} times without progress (run.max_restarts)"
        text += f"\nLog file: {roles[first.role].log_file}"
        if first.frames:
            text += f"\n--- traceback in {first.role} ---\n{first.frames}"
        return text

    def _read(self, role: RoleRecord, life: Incarnation) -> None:
        code = life.handle.poll_exit()  # before the messages: once it has ended, no more are on their way
        for message in life.handle.receive():
            self._on_message(role, message)
        if code is None:
            return
        has_returned, cause = role.on_exit(code)
        life.handle.close()
        # A main role that was asked to stop alone, as by a signal to its process, has not come to the run's end.
        ends_run = role.spec.is_main or role.spec.ends_run
        is_stopping = self.state == "stopping" or bool(self.stop_reason)
        if (has_returned or life.is_cut) and (is_stopping or (ends_run and not life.is_asked)):
            role.life = None
            role.set_state("done")
            self.is_complete |= ends_run and not self.stop_reason
        else:
            self._handle_death(role, cause)

    def _on_message(self, role: RoleRecord, message: dict) -> None:
        if message["kind"] == "log":
            self._on_log(role.spec.name, message["level"], message["text"])
            return
        role.on_message(message)
        self.stop_reason = self.stop_reason or message.get("stop_reason", "")
        if message["kind"] == "failure":
            # Its process may take a while to end, and others may end because of it before.
            self._causes.append(role.explain(message))
            if role.spec.in_thread:  # has no process that writes its log
                with contextlib.suppress(OSError), role.log_file.open("a") as file:
                    file.write(message["traceback"])
        if (overdue := message.get("overdue")) and role.life and not role.life.kill_reason:
            role.hangs += 1
            self.kill(role, overdue)
        if message.get("is_terminated") and role.life and "stopping" not in (role.state, self.state):
            self._stop_terminated(role, role.life)

    def _stop_terminated(self, role: RoleRecord, life: Incarnation) -> None:
        """Stops a role that got SIGTERM, unless the supervisor gets it too and stops all of them in order."""
        now = time.monotonic()
        life.terminated_at = life.terminated_at or now
        if now - life.terminated_at >= HEARTBEAT_S:
            self._on_log(role.spec.name, "warning", "received SIGTERM: stopping")
            self.stop(role)

    def _handle_death(self, role: RoleRecord, cause: Cause) -> None:
        """Handles an exit that was not requested: restart, continue without the role, or fail the run."""
        if cause not in self._causes:
            self._causes.append(cause)
        is_stopping = self.state == "stopping"
        verdict = Verdict.CONTINUE if is_stopping else role.apply_policy(cause)
        role.life = None
        role.set_state("restarting" if verdict is Verdict.RESTART else "dead")
        is_last = all(other.state in ("dead", "done") for other in self.roles)
        # While stopping, only the main role matters: the stop was to end with its checkpoint.
        is_fatal = role.spec.is_main if is_stopping else verdict is Verdict.GIVE_UP or is_last
        if is_fatal and not self.fatal:
            self.fatal = cause
        what_next = "giving up" if is_fatal else "restarting" if verdict is Verdict.RESTART else "continuing without it"
        head, _, more = cause.what.partition("\n")
        lines = [f"{head}: {what_next}", more, cause.frames]
        self._on_log(role.spec.name, "error" if is_fatal else "warning", "\n".join(filter(None, lines)))
        self._on_death(cause, role.log_file)

    def _check(self) -> None:
        now = self.looked  # not later: this process may have been stopped since, and nobody has made up for it
        for role in self.roles:
            if role.life:
                silence_s = now - role.life.last_heartbeat
                if role.life.given_up:  # has had a tick for its stacks
                    self.kill(role, role.life.given_up)
                elif silence_s > self._heartbeat_timeout_s:
                    role.life.given_up = f"no heartbeat for {silence_s:.0f} s"
                    role.life.handle.show_stacks()
                elif role.life.exit_by is not None and now > role.life.exit_by:
                    self.kill(role, "still alive after the role returned")
        if self.state == "starting" and all(role.has_run or role.state == "dead" for role in self.roles):
            self.state = "running"
        # A role that is stable again no longer explains later failures.
        stable = {role.spec.name for role in self.roles if role.is_stable()}
        self._causes = [cause for cause in self._causes if cause.role not in stable]
