"""What a role finds in its process, what the supervisor tells about it, and roles in threads."""

import json
import os
import random
import threading

import numpy as np
import pytest

from dreamfleet import lifecycle
from dreamfleet.base.seeds import derive_seed
from dreamfleet.errors import RunFailed
from dreamfleet.launch.supervise.incarnations import Incarnations
from dreamfleet.launch.supervise.status import read_status
from dreamfleet.launch.topology import RoleSpec
from tests.launch import targets

pytestmark = pytest.mark.distributed


@pytest.fixture(autouse=True)
def clean_lifecycle():
    yield
    lifecycle.reset()


def test_logs_are_forwarded_and_written(fleet):
    fleet.journal.on("main", "ready", fleet.request_stop)
    fleet.run(RoleSpec("main", targets.log_and_serve, is_main=True))
    assert ("main", "warning", "careful: üüü") in fleet.journal.lines
    assert not fleet.journal.find("main", "not ours|too small|printed")
    written = (fleet.logdir / "logs/main.log").read_text()
    for part in ("main WARNING careful: üüü", "not ours", "printed", "incarnation 0"):
        assert part in written
    assert "too small" not in written


def test_role_has_its_own_surroundings(fleet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fleet.journal.on("main", "ready", fleet.request_stop)
    fleet.run(RoleSpec("main", targets.look_around, is_main=True, environ={"A_VARIABLE": "set"}))
    assert fleet.journal.find("main", f"cwd={tmp_path} variable=set stdin=''")
    assert fleet.journal.find("main", "group=True session=True")


def test_role_is_seeded_by_its_name_and_incarnation(fleet):
    fleet.journal.on("env0", r"ready pid=(\d+)", lambda match: os.kill(int(match[1]), 9))
    fleet.journal.on("env0", "restarting", lambda _: fleet.journal.on("env0", "ready", fleet.request_stop))
    fleet.run(RoleSpec("env0", targets.draw, seed=5))
    drawn = [match[1] for match in fleet.journal.find("env0", "drew (.*)")]
    expected = []
    for incarnation in range(2):
        seed = derive_seed(5, "env0", 0, incarnation)
        expected.append(f"{random.Random(seed).random()} {np.random.RandomState(seed).random()}")
    assert drawn == expected


def test_status_tells_what_each_role_does(fleet):
    statuses = []

    def is_awaited(status: dict) -> bool:
        return status["state"] == "running" and bool(status["roles"]["waiter"]["waits"])

    def watch(status: dict) -> None:
        statuses.append(status)
        assert read_status(fleet.logdir) == status
        if is_awaited(status):
            fleet.request_stop()

    fleet.run(
        RoleSpec("main", targets.serve, is_main=True),
        RoleSpec("waiter", targets.wait_for, ("a sign from replay",)),
        on_status=watch,
    )
    live = next(filter(is_awaited, statuses))
    (ready,) = fleet.journal.find("waiter", r"ready pid=(\d+)")
    waiter = live["roles"]["waiter"]
    assert live["state"] == "running" and live["supervisor"] == os.getpid()
    assert waiter["pid"] == int(ready[1]) and waiter["state"] == "running"
    assert waiter["restarts"] == 0 and waiter["exit"] is None and waiter["since"] >= 0
    assert 0 <= waiter["heartbeat_age_s"] < 60
    assert waiter["memory_mb"] > 5 and (waiter["cpu"] is None or waiter["cpu"] >= 0)
    assert waiter["waits"][0]["what"] == "a sign from replay" and waiter["waits"][0]["seconds"] >= 0.5
    last = json.loads((fleet.logdir / "status.json").read_text())
    assert last == statuses[-1] and last["state"] == "stopped"
    for role in last["roles"].values():
        assert role["state"] == "done" and role["exit"] == "exit code 0" and role["pid"] is None
    assert statuses[0]["state"] == "starting"
    assert sorted(path.name for path in fleet.logdir.iterdir()) == ["incarnations", "logs", "status.json"]


def test_failed_run_is_told_in_the_status(fleet):
    with pytest.raises(RunFailed):
        fleet.run(RoleSpec("main", targets.exit_with, (2,), is_main=True, in_thread=True))
    status = read_status(fleet.logdir)
    assert status["state"] == "failed"
    assert status["roles"]["main"]["state"] == "dead" and status["roles"]["main"]["exit"] == "SystemExit: 2"


def test_role_in_a_thread_completes_the_run(fleet):
    seen = {}

    def main() -> None:
        seen.update(pid=os.getpid(), thread=threading.current_thread().name)
        lifecycle.set_state("running")
        targets.wait_at(fleet.gate)

    fleet.journal.on("other", "ready", fleet.open_gate)
    fleet.run(RoleSpec("main", main, is_main=True, in_thread=True), RoleSpec("other", targets.serve))
    assert seen == {"pid": os.getpid(), "thread": "main"}
    assert fleet.journal.find("other", "stopped")


def test_role_in_a_thread_is_stopped(fleet):
    lifecycle.request_stop()  # left over from an earlier run in this process
    stops = []
    pids = []

    def main() -> None:
        lifecycle.set_state("running")
        stops.append(lifecycle.stopping())
        stops.append(lifecycle.wait_stop(60))

    def watch(status: dict) -> None:
        pids.append(status["roles"]["main"]["pid"])
        if status["state"] == "running":
            fleet.request_stop()

    fleet.run(RoleSpec("main", main, is_main=True, in_thread=True), on_status=watch)
    assert stops == [False, True]
    assert pids[0] == os.getpid()


def test_role_in_a_thread_fails_the_run(fleet):
    with pytest.raises(RunFailed, match="main failed: ValueError: in a thread") as caught:
        fleet.run(
            RoleSpec("main", targets.fail, ("in a thread",), is_main=True, in_thread=True),
            RoleSpec("other", targets.serve),
        )
    assert 'targets.py", line' in str(caught.value)


def test_thread_that_does_not_stop_is_left_behind(fleet):
    leave = threading.Event()
    fleet.journal.on("other", "ready", fleet.request_stop)
    specs = [RoleSpec("main", leave.wait, is_main=True, in_thread=True), RoleSpec("other", targets.serve)]
    with pytest.raises(RunFailed, match=r"main failed: killed, as it did not stop within 0\.2 s"):
        fleet.run(*specs, stop_grace_s=0.2)
    leave.set()
    assert fleet.journal.find("main", "did not stop within 0.2 s")
    assert read_status(fleet.logdir)["roles"]["main"]["state"] == "dead"


def test_lives_are_counted_over_restarts_and_resumes_of_the_run(fleet):
    """No seed is used twice, also when the launcher is killed, since a number counts as used before the role starts."""
    specs = [RoleSpec("main", targets.draw, is_main=True, seed=5), RoleSpec("env0", targets.draw, seed=5)]
    expected = []
    for incarnation in range(3):
        fleet.journal.lines.clear()
        fleet.journal.on("env0", "drew", fleet.request_stop)
        fleet.run(*specs)
        random.seed(derive_seed(5, "env0", 0, incarnation))
        expected.append(random.random())
        assert fleet.journal.find("env0", f"drew {expected[-1]} ")
        assert (fleet.logdir / "incarnations").read_text() == f"{incarnation + 1}\n"
    assert len(set(expected)) == 3


def test_a_damaged_count_of_lives_leads_to_numbers_that_were_never_used(tmp_path):
    (tmp_path / "incarnations").write_text("")
    assert Incarnations(tmp_path).first > 1_000_000
