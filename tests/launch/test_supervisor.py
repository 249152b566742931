"""The supervisor over real processes: ends, deaths, restarts, freezes."""

import os
import signal
import threading

import psutil
import pytest

from dreamfleet.errors import ConfigError, RunFailed, RunRefused
from dreamfleet.launch.supervise.status import read_status
from dreamfleet.launch.topology import RestartPolicy, RoleSpec
from tests.launch import targets

pytestmark = pytest.mark.distributed

SOON = RestartPolicy(backoff_s=0.01)
NEVER = RestartPolicy(restart=False)


def send(number: int):
    """An action that sends a signal to the pid in the log line."""
    return lambda match: os.kill(int(match[1]), number)


def main_until(fleet, role: str, pattern: str) -> RoleSpec:
    """A main role that returns once `role` logs the pattern."""
    fleet.journal.on(role, pattern, fleet.open_gate)
    return RoleSpec("main", targets.wait_at, (fleet.gate,), is_main=True)


def test_run_ends_when_the_main_role_returns(fleet, is_gone):
    fleet.run(main_until(fleet, "other", "ready"), RoleSpec("other", targets.serve))
    assert fleet.journal.find("other", "stopped")
    for role in ("main", "other"):
        (ready,) = fleet.journal.find(role, r"ready pid=(\d+)")
        assert is_gone(int(ready[1]))


def test_role_that_fails_is_restarted(fleet, tmp_path):
    folder = tmp_path / "starts"
    folder.mkdir()
    specs = [
        main_until(fleet, "other", "ready"),
        RoleSpec("other", targets.fail_starts, (str(folder), 2), policy=SOON),
    ]
    statuses = []
    fleet.run(*specs, on_status=statuses.append)
    assert len(fleet.journal.find("other", "ValueError: failed start [01]: restarting")) == 2
    assert statuses[-1]["roles"]["other"]["restarts"] == 2
    assert statuses[-1]["state"] == "complete"


def test_role_that_returns_too_early_is_restarted(fleet):
    fleet.journal.on("other", "exit code 0: restarting", fleet.open_gate)
    fleet.run(
        RoleSpec("main", targets.wait_at, (fleet.gate,), is_main=True),
        RoleSpec("other", targets.return_at_once, policy=SOON),
    )


def test_spent_budget_fails_the_run_with_the_traceback(fleet):
    policy = RestartPolicy(max_restarts=3, backoff_s=0.01)
    with pytest.raises(RunFailed) as caught:
        fleet.run(
            RoleSpec("main", targets.serve, is_main=True),
            RoleSpec("other", targets.fail, ("the reason",), policy=policy),
        )
    line = targets.fail.__code__.co_firstlineno + 1
    for part in ("other failed: ValueError: the reason", f'targets.py", line {line}, in fail', "logs/other.log"):
        assert part in str(caught.value)
    assert len(fleet.journal.find("other", "ValueError: the reason")) == 3
    assert fleet.journal.find("main", "stopped")


def test_error_that_a_restart_cannot_cure_ends_the_run(fleet):
    with pytest.raises(RunFailed, match="main failed: NonFiniteLoss: the reason"):
        fleet.run(
            RoleSpec("main", targets.fail_for_good, ("the reason",), is_main=True, policy=SOON),
            RoleSpec("other", targets.serve),
        )
    assert len(fleet.journal.find("main", "ready")) == 1


def test_setting_that_cannot_work_ends_the_run_at_its_first_start(fleet):
    with pytest.raises(RunRefused, match=r"^other: speed=0 cannot work; change it$"):
        fleet.run(
            RoleSpec("main", targets.serve, is_main=True),
            RoleSpec("other", targets.refuse, ("speed",), policy=SOON, optional=True),
        )
    assert len(fleet.journal.find("other", "looking at")) == 1
    assert not fleet.journal.find("other", "Traceback")


def test_setting_of_a_role_that_has_run_is_tried_again(fleet, tmp_path):
    """A port, for example, may still be in use by what was there before."""

    def kill_first(status: dict) -> None:
        other = status["roles"]["other"]
        if other["state"] == "running" and other["restarts"] == 0:
            os.kill(other["pid"], signal.SIGKILL)
        elif other["state"] == "running":
            fleet.open_gate()

    fleet.run(
        RoleSpec("main", targets.wait_at, (fleet.gate,), is_main=True),
        RoleSpec("other", targets.refuse_later, ("port", str(tmp_path / "lives")), policy=SOON),
        on_status=kill_first,
    )
    assert fleet.journal.find("other", "ConfigError: port=0 .*: restarting")


def test_first_cause_is_shown_and_not_what_followed(fleet):
    """The agent is to be restarted, when another role dies because of it and may not be."""
    fleet.journal.on("other", r"ready pid=(\d+)", fleet.open_gate)
    kill_other = send(signal.SIGKILL)
    fleet.journal.on("agent", "the cause: restarting", lambda _: kill_other(fleet.journal.find("other", "pid=(.*)")[0]))
    with pytest.raises(RunFailed) as caught:
        fleet.run(
            RoleSpec("other", targets.serve, policy=NEVER),
            RoleSpec("agent", targets.fail_at, (fleet.gate, "the cause"), is_main=True),
        )
    message = str(caught.value)
    assert message.startswith("agent failed: ValueError: the cause")
    assert "The run ended when other failed after that: killed by SIGKILL" in message
    assert "--- traceback in agent ---" in message and "in fail_at" in message


def test_first_cause_is_shown_even_if_its_process_ends_last(fleet):
    fleet.journal.on("agent", "lingering", fleet.open_gate)
    with pytest.raises(RunFailed, match="agent failed: ValueError: the cause"):
        fleet.run(
            RoleSpec("agent", targets.fail_and_linger, ("the cause",), policy=NEVER),
            RoleSpec("other", targets.fail_at, (fleet.gate, "the consequence"), policy=NEVER),
            others_grace_s=0.5,
        )


def test_failure_without_budget_ends_the_run(fleet):
    policy = RestartPolicy(max_restarts=0)
    with pytest.raises(RunFailed, match="other failed: ValueError: once"):
        fleet.run(
            RoleSpec("main", targets.serve, is_main=True),
            RoleSpec("other", targets.fail_when_running, ("once",), policy=policy),
        )


def test_role_that_is_killed_as_soon_as_it_makes_progress_spends_no_budget(fleet, tmp_path):
    policy = RestartPolicy(max_restarts=2, backoff_s=0.01)
    fleet.run(
        main_until(fleet, "other", "ready"),
        RoleSpec("other", targets.die_when_running, (str(tmp_path / "lives"), 4, True), policy=policy),
    )
    assert len(fleet.journal.find("other", "killed by SIGKILL: restarting")) == 4


def test_role_that_is_killed_as_soon_as_it_runs_spends_its_budget(fleet, tmp_path):
    policy = RestartPolicy(max_restarts=3, backoff_s=0.01)
    lives = tmp_path / "lives"
    with pytest.raises(RunFailed, match=r"(?s)other failed: killed by SIGKILL.*other died 3 times without progress"):
        fleet.run(
            RoleSpec("main", targets.serve, is_main=True),
            RoleSpec("other", targets.die_when_running, (str(lives), 1000, False), policy=policy),
        )
    assert len(lives.read_text()) == 3


def test_killed_role_is_replaced(fleet):
    fleet.journal.on("other", r"ready pid=(\d+)", send(signal.SIGKILL))
    main = main_until(fleet, "other", "killed by SIGKILL: restarting")
    fleet.run(main, RoleSpec("other", targets.serve))


def test_killed_main_role_is_replaced(fleet):
    fleet.journal.on("main", r"ready pid=(\d+)", send(signal.SIGKILL))
    fleet.journal.on("main", "killed by SIGKILL: restarting", fleet.open_gate)
    fleet.run(RoleSpec("main", targets.wait_at, (fleet.gate,), policy=SOON, is_main=True))
    assert len(fleet.journal.find("main", "ready")) == 2


def test_stopped_role_is_replaced(fleet, is_gone):
    fleet.journal.on("other", r"ready pid=(\d+)", send(signal.SIGSTOP))
    main = main_until(fleet, "other", "killed by the supervisor: no heartbeat for [0-9]+ s: restarting")
    fleet.run(main, RoleSpec("other", targets.serve), heartbeat_timeout_s=3.0)
    assert is_gone(int(fleet.journal.find("other", r"ready pid=(\d+)")[0][1]))


def test_frozen_role_is_replaced_and_leaves_its_stacks(fleet):
    # A slow start may be replaced too, before it has stacks to show.
    silence = "without a heartbeat|no heartbeat"
    fleet.journal.on("other", "ready", lambda _: fleet.journal.on("other", silence, fleet.open_gate))
    main = RoleSpec("main", targets.wait_at, (fleet.gate,), is_main=True)
    fleet.run(main, RoleSpec("other", targets.hold_gil), heartbeat_timeout_s=3.0)
    assert "in hold_gil" in (fleet.logdir / "logs/other.log").read_text()


def test_terminated_role_is_stopped_and_replaced(fleet):
    fleet.journal.on("other", r"ready pid=(\d+)", send(signal.SIGTERM))
    fleet.run(main_until(fleet, "other", "exit code 0: restarting"), RoleSpec("other", targets.serve))
    assert fleet.journal.find("other", "stopped")


def test_terminated_main_role_is_replaced_and_does_not_end_the_run(fleet):
    fleet.journal.on("main", r"ready pid=(\d+)", send(signal.SIGTERM))
    fleet.journal.on("main", "exit code 0: restarting", fleet.request_stop)
    assert fleet.run(RoleSpec("main", targets.serve, is_main=True, policy=SOON)).state == "stopped"
    assert len(fleet.journal.find("main", "stopped")) >= 1


@pytest.mark.parametrize("is_preparation, state", [(True, "starting"), (False, "complete")])
def test_what_prepares_a_run_does_not_make_it_complete(fleet, is_preparation, state):
    fleet.open_gate()
    fleet.run(RoleSpec("main", targets.wait_at, (fleet.gate,), is_main=True), is_preparation=is_preparation)
    assert read_status(fleet.logdir)["state"] == state


def test_run_goes_on_without_optional_roles(fleet):
    specs = [RoleSpec("main", targets.wait_at, (fleet.gate,), is_main=True)]
    for name in ("env0", "env1"):
        specs.append(RoleSpec(name, targets.serve, policy=NEVER, optional=True))
        fleet.journal.on(name, r"ready pid=(\d+)", send(signal.SIGKILL))
    gone = "killed by SIGKILL: continuing without it"
    fleet.journal.on_all([("env0", gone), ("env1", gone), ("env2", "ready")], fleet.open_gate)
    fleet.run(*specs, RoleSpec("env2", targets.serve, policy=NEVER, optional=True))
    assert fleet.journal.find("env2", "stopped")


def test_run_fails_when_nothing_is_left_of_it(fleet):
    with pytest.raises(RunFailed, match="env failed: ValueError: gone"):
        fleet.run(RoleSpec("env", targets.fail, ("gone",), policy=NEVER, optional=True))


def test_death_of_a_role_that_must_live_fails_the_run(fleet):
    fleet.journal.on("replay", r"ready pid=(\d+)", send(signal.SIGKILL))
    with pytest.raises(RunFailed, match="replay failed: killed by SIGKILL"):
        fleet.run(RoleSpec("main", targets.serve, is_main=True), RoleSpec("replay", targets.serve, policy=NEVER))


def test_descendants_end_with_their_role(fleet, is_gone):
    """On the death, the return, and the stop of the role."""
    fleet.journal.on("killed", r"pid=(\d+)", send(signal.SIGKILL))
    facts = [("killed", "killed by SIGKILL"), ("returned", "descendants"), ("stopped", "descendants")]
    fleet.journal.on_all(facts, fleet.open_gate)
    fleet.run(
        RoleSpec("main", targets.wait_at, (fleet.gate,), is_main=True),
        RoleSpec("killed", targets.start_descendants, policy=NEVER, optional=True),
        RoleSpec("returned", targets.start_descendants, ("return",), policy=NEVER, optional=True),
        RoleSpec("stopped", targets.start_descendants),
    )
    for role in ("killed", "returned", "stopped"):
        (found,) = fleet.journal.find(role, r"descendants (\d+) (\d+)")
        assert is_gone(int(found[1])) and is_gone(int(found[2])), role


def test_fork_of_a_role_does_not_speak_for_it(fleet):
    fleet.journal.on("main", r"descendants .* pid=(\d+)", send(signal.SIGKILL))
    fleet.journal.on("main", "killed by SIGKILL: restarting", fleet.request_stop)
    fleet.run(RoleSpec("main", targets.start_descendants, is_main=True))
    assert fleet.supervisor.stop_reason == "test"


def test_thread_that_lingers_does_not_keep_the_run_alive(fleet):
    fleet.run(RoleSpec("main", targets.linger, is_main=True), exit_grace_s=0.5)
    assert fleet.logdir.joinpath("status.json").exists()


@pytest.mark.parametrize("code, is_failure", [(None, False), (0, False), (3, True), ("bad end", True)])
def test_exit_of_the_main_role_counts_like_its_return(fleet, code, is_failure):
    spec = RoleSpec("main", targets.exit_with, (code,), policy=NEVER, is_main=True)
    if is_failure:
        with pytest.raises(RunFailed, match=f"main failed: SystemExit: {code}"):
            fleet.run(spec)
    else:
        fleet.run(spec)


def test_unpicklable_target_is_refused_before_anything_starts(fleet):
    lock = threading.Lock()
    before = psutil.Process().children()
    with pytest.raises(ConfigError, match=r"role other: target=.* cannot be sent to its process \(TypeError"):
        fleet.make(RoleSpec("main", targets.serve), RoleSpec("other", lambda: lock.acquire()))
    assert psutil.Process().children() == before


def test_error_while_unpickling_is_reported(fleet):
    spec = RoleSpec("main", "no_such_module:main", policy=NEVER, is_main=True)
    with pytest.raises(RunFailed, match="main failed: ModuleNotFoundError: No module named 'no_such_module'"):
        fleet.run(spec)


def test_exception_in_a_callback_ends_every_process(fleet):
    def explode(_):
        raise ZeroDivisionError

    fleet.journal.on("other", "ready", explode)
    before = psutil.Process().children()
    with pytest.raises(ZeroDivisionError):
        fleet.run(RoleSpec("main", targets.serve, is_main=True), RoleSpec("other", targets.ignore_stop))
    assert psutil.Process().children() == before


def test_role_that_ignores_its_stop_is_killed(fleet):
    fleet.journal.on("other", "ready", fleet.request_stop)
    fleet.run(
        RoleSpec("main", targets.serve, is_main=True),
        RoleSpec("other", targets.ignore_stop),
        RoleSpec("patient", targets.ignore_stop, stop_order=1, stop_grace_s=0.8),
        others_grace_s=0.5,
    )
    for role, grace in (("other", 0.5), ("patient", 0.8)):
        assert fleet.journal.find(role, f"did not stop within {grace} s")


def test_main_role_that_ignores_its_stop_fails_the_run(fleet):
    """What it was to save at its end is not saved."""
    statuses = []
    fleet.journal.on("main", "ready", fleet.request_stop)
    with pytest.raises(RunFailed, match=r"main failed: killed, as it did not stop within 0.5 s: 12 updates are lost"):
        fleet.run(
            RoleSpec("main", targets.ignore_stop, is_main=True),
            stop_grace_s=0.5,
            on_status=statuses.append,
            describe_loss=lambda: "12 updates are lost",
        )
    assert statuses[-1]["state"] == "failed"


def test_main_role_that_is_killed_at_its_stop_fails_the_run(fleet):
    fleet.journal.on("main", "ready", fleet.request_stop)
    fleet.journal.on(
        "supervisor", "stopping", lambda _: send(signal.SIGKILL)(fleet.journal.find("main", "pid=(.*)")[0])
    )
    with pytest.raises(RunFailed, match="main failed: killed by SIGKILL"):
        fleet.run(RoleSpec("main", targets.ignore_stop, is_main=True))


def test_roles_stop_in_order(fleet):
    fleet.journal.on_all([(role, "ready") for role in ("logger", "replay", "main", "env")], fleet.request_stop)
    fleet.run(
        RoleSpec("logger", targets.serve, stop_order=2),
        RoleSpec("replay", targets.serve, stop_order=1),
        RoleSpec("main", targets.serve, is_main=True, stop_order=9),
        RoleSpec("env", targets.serve),
    )
    stopped = [role for role, _, text in fleet.journal.lines if text == "stopped"]
    assert stopped == ["main", "env", "replay", "logger"]


def test_failure_of_the_main_role_at_its_stop_is_not_swallowed(fleet):
    fleet.journal.on("main", "ready", fleet.request_stop)
    with pytest.raises(RunFailed, match="main failed: ValueError: disk full"):
        fleet.run(RoleSpec("main", targets.fail_on_stop, ("disk full",), is_main=True))


def test_stop_before_the_run_is_kept(fleet):
    made = fleet.make(RoleSpec("main", targets.serve, is_main=True))
    made.request_stop("early")
    made.run()
    assert made.stop_reason == "early"
