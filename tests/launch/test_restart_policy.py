"""What a death means, by policy and history, without any process."""

import time
from pathlib import Path

import pytest

from dreamfleet.launch.supervise.process import RoleThread
from dreamfleet.launch.supervise.role_record import (
    PROGRESS_S,
    STABLE_S,
    Cause,
    Incarnation,
    RoleRecord,
    Verdict,
    describe_exit,
)
from dreamfleet.launch.topology import RestartPolicy, RoleSpec


@pytest.fixture
def handle():
    return RoleThread(RoleSpec("role", time.monotonic), 0, lambda: None)


@pytest.fixture
def make_role(handle):
    def make(policy: RestartPolicy, **options) -> RoleRecord:
        role = RoleRecord(RoleSpec("role", print, policy=policy, **options), b"", Path("role.log"))
        role.life = Incarnation(handle, time.monotonic())
        return role

    return make


def die(role: RoleRecord, ran_s: float | None, progress: bool = False) -> Verdict:
    """Judges a death after the role was running for so long, or had not got there."""
    assert role.life
    role.life.has_progressed = progress
    role.life.running_since = None if ran_s is None else time.monotonic() - ran_s
    role.restart_at = None
    return role.apply_policy(Cause("role", "killed", "", time.monotonic()))


def delay_s(role: RoleRecord) -> float:
    assert role.restart_at is not None
    return role.restart_at - time.monotonic()


def test_failed_starts_in_a_row_spend_the_budget(make_role):
    role = make_role(RestartPolicy(max_restarts=3))
    assert [die(role, None) for _ in range(3)] == [Verdict.RESTART, Verdict.RESTART, Verdict.GIVE_UP]


@pytest.mark.parametrize("ran_s", [None, 0.1, PROGRESS_S - 1])
def test_having_run_for_a_moment_is_no_progress(make_role, ran_s):
    role = make_role(RestartPolicy(max_restarts=3))
    assert [die(role, ran_s) for _ in range(3)] == [Verdict.RESTART, Verdict.RESTART, Verdict.GIVE_UP]


@pytest.mark.parametrize("life", [{"ran_s": 0.1, "progress": True}, {"ran_s": PROGRESS_S + 1}])
def test_progress_or_a_minute_gives_the_budget_back(make_role, life):
    role = make_role(RestartPolicy(max_restarts=2))
    for _ in range(4):
        assert die(role, None) is Verdict.RESTART
        assert die(role, **life) is Verdict.RESTART
    assert [die(role, None) for _ in range(2)] == [Verdict.RESTART, Verdict.GIVE_UP]


@pytest.mark.parametrize("ran_s", [None, 0.1, 1000.0])
def test_no_budget_means_that_any_death_ends_the_run(make_role, ran_s):
    assert die(make_role(RestartPolicy(max_restarts=0)), ran_s) is Verdict.GIVE_UP


def test_dying_soon_after_running_still_backs_off(make_role):
    role = make_role(RestartPolicy(max_restarts=9, backoff_s=100.0, backoff_max_s=1000.0))
    delays = []
    for _ in range(4):
        die(role, 0.1)
        delays.append(round(delay_s(role), -1))
    assert delays == [100, 200, 400, 800]
    die(role, STABLE_S + 1)
    assert round(delay_s(role), -1) == 100


def test_without_restarts_only_optional_roles_may_die(make_role):
    policy = RestartPolicy(restart=False)
    assert die(make_role(policy, optional=True), None) is Verdict.CONTINUE
    assert die(make_role(policy), 1000.0) is Verdict.GIVE_UP


def test_thread_is_never_restarted(make_role):
    assert die(make_role(RestartPolicy(), in_thread=True), 1000.0) is Verdict.GIVE_UP


def test_exits_are_described():
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "killed by SIGKILL"
    assert describe_exit(-60) == "killed by signal 60"


def test_deaths_for_the_loss_of_others_do_not_spend_the_budget(make_role):
    role = make_role(RestartPolicy(max_restarts=2))
    role.life.outcome = {"kind": "failure", "is_own_fault": False}
    assert [die(role, None) for _ in range(4)] == [Verdict.RESTART] * 4
    role.life.outcome = None
    assert [die(role, None) for _ in range(2)] == [Verdict.RESTART, Verdict.GIVE_UP]
