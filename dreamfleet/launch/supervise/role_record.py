"""The supervisor's record of one role, and its restart decisions. Contains no process logic."""

import signal
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from dreamfleet.launch.supervise.lifeline import HEARTBEAT_S
from dreamfleet.launch.supervise.process import RoleHandle
from dreamfleet.launch.topology import RoleSpec

STABLE_S = 10.0  # after running this long, a role's restart back-off is reset
PROGRESS_S = 60.0  # running this long counts as progress
EXIT_GRACE_S = 10.0  # from the role's return to the end of its process


class Verdict(Enum):
    """What the restart policy decides after a death."""

    RESTART = "restart"
    CONTINUE = "continue"
    GIVE_UP = "give up"


@dataclass(frozen=True)
class Cause:
    """Why a role died; `at` is on the monotonic clock."""

    role: str
    what: str
    traceback: str
    at: float
    is_refusal: bool = False  # of a setting, before the role ever ran
    frames: str = ""  # those of the traceback that are the user's own


@dataclass
class Incarnation:
    """One life of a role, from its start to its exit."""

    handle: RoleHandle
    last_heartbeat: float
    running_since: float | None = None
    has_progressed: bool = False
    beat_age_s: float = 0.0
    waits: list[dict] = field(default_factory=list)
    figures: dict[str, float | str] = field(default_factory=dict)
    cpu: float | None = None  # cores that its process uses
    memory_mb: float | None = None
    _cpu_s: float = 0.0  # used until the time below
    _cpu_at: float = field(default_factory=time.monotonic)
    outcome: dict | None = None
    exit_by: float | None = None
    given_up: str = ""  # why it is killed at the next tick
    kill_reason: str = ""
    is_asked: bool = False  # to stop
    terminated_at: float | None = None  # by SIGTERM of somebody else, as far as is known
    is_cut: bool = False  # killed after that, as it had not started

    def measure_cpu(self, cpu_s: float) -> None:
        """Takes the processor time so far; a state that has changed sends heartbeats too close to compare."""
        now = time.monotonic()
        if (elapsed_s := now - self._cpu_at) >= HEARTBEAT_S / 2:
            self.cpu = max(0.0, cpu_s - self._cpu_s) / elapsed_s
            self._cpu_s, self._cpu_at = cpu_s, now


@dataclass(eq=False)
class RoleRecord:
    """One role over all its incarnations; `life` is the current one, if any."""

    spec: RoleSpec
    payload: bytes
    log_file: Path
    exit_grace_s: float = EXIT_GRACE_S
    life: Incarnation | None = None
    state: str = "starting"
    since: float = field(default_factory=time.monotonic)
    starts: int = 0
    has_run: bool = False
    exit: str | None = None
    restart_at: float | None = None
    deaths: int = 0  # since the last progress
    backoff_step: int = 0
    hangs: int = 0  # kills because of an exceeded time limit

    def set_state(self, state: str) -> None:
        if state != self.state:
            self.state, self.since = state, time.monotonic()

    def on_message(self, message: dict) -> None:
        """Records a heartbeat or an outcome of the current incarnation."""
        now = time.monotonic()
        assert self.life is not None, self.spec.name
        if message["kind"] == "heartbeat":
            self.life.last_heartbeat = now
            self.life.memory_mb = message["memory_mb"]
            self.life.measure_cpu(message["cpu_s"])
            self.life.beat_age_s, self.life.waits = message["beat_age_s"], message["waits"]
            self.life.figures = message["figures"]
            self.life.has_progressed = message["has_progressed"]
        else:
            # A role that fails may still return, with its checkpoint if it has one to write.
            grace_s = self.spec.stop_grace_s if message["kind"] == "failure" else 0.0
            self.life.outcome, self.life.exit_by = message, now + max(self.exit_grace_s, grace_s)
        if message["state"] == "running":
            self.has_run = True
            self.life.running_since = self.life.running_since or now
        if self.state != "stopping":  # a heartbeat sent before the stop request arrived
            self.set_state(message["state"])

    def on_exit(self, code: int | None) -> tuple[bool, Cause]:
        """Ends the incarnation: whether the role had returned, and what to say if it should not have ended.

        A role has returned even if its process had to be killed afterwards, because of a thread that lingered.
        """
        life, now = self.life, time.monotonic()
        assert life is not None, self.spec.name
        outcome = life.outcome or {"kind": "none"}
        has_returned = code == 0 or outcome["kind"] == "done"
        if outcome["kind"] == "failure":
            self.exit = outcome["summary"]
            return has_returned, self.explain(outcome)
        what = life.kill_reason or describe_exit(code)
        if not has_returned and not life.kill_reason and now - life.last_heartbeat > 2 * HEARTBEAT_S:
            what += f" after {now - life.last_heartbeat:.0f} s without a heartbeat"
        self.exit = what
        return has_returned, Cause(self.spec.name, what, "", life.handle.lost_at or now)

    def explain(self, failure: dict) -> Cause:
        """What the message of a failure says; a role that has run once had settings that work."""
        is_refusal = failure["is_refusal"] and (failure["is_fatal"] or not self.has_run)
        frames = "" if is_refusal else failure["frames"]
        return Cause(self.spec.name, failure["summary"], failure["traceback"], failure["at"], is_refusal, frames)

    def apply_policy(self, cause: Cause) -> Verdict:
        """Applies the restart policy to the death of the current incarnation; sets `restart_at` for a restart."""
        policy, life, now = self.spec.policy, self.life, time.monotonic()
        if cause.is_refusal or (life and life.outcome and life.outcome.get("is_fatal")):
            return Verdict.GIVE_UP
        if self.spec.in_thread or not policy.restart:
            return Verdict.CONTINUE if self.spec.optional else Verdict.GIVE_UP
        ran_s = now - life.running_since if life and life.running_since is not None else 0.0
        has_progressed = life is not None and life.has_progressed
        is_own_fault = not (life and life.outcome) or life.outcome.get("is_own_fault", True)
        self.deaths = 0 if has_progressed or ran_s >= PROGRESS_S else self.deaths + is_own_fault
        if ran_s >= STABLE_S:
            self.backoff_step = 0
        if policy.max_restarts == 0 or self.deaths >= policy.max_restarts:
            return Verdict.GIVE_UP
        self.restart_at = now + policy.delay_s(self.backoff_step)
        self.backoff_step += 1
        return Verdict.RESTART

    def is_stable(self) -> bool:
        """Whether the role has been running for at least STABLE_S."""
        return self.state == "running" and time.monotonic() - self.since >= STABLE_S

    def status(self) -> dict:
        """The role's entry in `status.json`."""
        now, life = time.monotonic(), self.life
        return {
            "pid": life.handle.pid if life else None,
            "host": life.handle.host if life else "",
            "state": self.state,
            "restarts": max(0, self.starts - 1),
            "hangs": self.hangs,
            "heartbeat_age_s": round(now - life.last_heartbeat, 1) if life else None,
            "beat_age_s": life.beat_age_s if life else None,
            "waits": life.waits if life else [],
            "figures": life.figures if life else {},
            "cpu": round(life.cpu, 2) if life and life.cpu is not None else None,
            "memory_mb": life.memory_mb if life else None,
            "exit": self.exit,
            "since": round(now - self.since, 1),
        }


def describe_exit(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "still running"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
