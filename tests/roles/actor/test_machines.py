"""What machines that have joined say of themselves: kept as files that lead nowhere else, failures logged once."""

import errno
import json
import logging
import os

import numpy as np
import pytest

from dreamfleet.base.joined import GONE_S, SILENT_S
from dreamfleet.dashboard.folders import Folder
from dreamfleet.dashboard.joined import Joined
from dreamfleet.errors import BadRequest
from dreamfleet.roles.actor import machines
from dreamfleet.roles.actor.machines import EVERY_S, FAILURES_S, MOST_FAILURES, Machines
from dreamfleet.roles.protocol import MachineStatus, RoleFailure, RoleStatus, RoleWait

ROLES = {"env0": RoleStatus("running", 77, 1, waits=(RoleWait("actor.act", 2.0, 0.5),))}


class Run:
    """A run in a directory, and its clock."""

    def __init__(self, directory):
        self.directory, self.now = directory, 100.0
        self.machines = self.make()

    def make(self, most: int = 10) -> Machines:
        self.machines = Machines(self.directory, "run", most, clock=lambda: self.now)
        return self.machines

    def tell(self, owner: str = "me", pause_s: float = EVERY_S, **facts) -> None:
        """Sends a status, after some time."""
        self.now += pause_s
        known = {"session": "abc", "name": "envs", "host": "there", "state": "running", "roles": ROLES}
        assert self.machines.take(MachineStatus(owner=owner, **{**known, **facts}).to_data(), {}) == {}

    def places(self) -> list[str]:
        root = self.directory / "joined"
        return sorted(path.name for path in root.iterdir()) if root.exists() else []

    def read(self, place: str = "there.envs") -> dict:
        return json.loads((self.directory / "joined" / place / "status.json").read_text())

    def make_older(self, place: str, seconds: float) -> None:
        path = self.directory / "joined" / place / "status.json"
        changed = path.stat().st_mtime - seconds
        os.utime(path, (changed, changed))


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run")


def fail(number: int, role: str = "env0", lines=("boom",)) -> RoleFailure:
    return RoleFailure(number, role, "killed by SIGKILL", tuple(lines))


def test_a_machine_is_kept_as_the_dashboard_reads_it(run):
    run.tell(package="1.0", protocol=4, env_rate=20.5, processes=1)
    status = run.read()
    assert (status["host"], status["package"], status["protocol"], status["env_rate"]) == ("there", "1.0", 4, 20.5)
    assert "owner" not in status and "session" not in status
    joined = Joined(Folder(run.directory))
    joined.refresh()
    role = joined.roles["there.envs/env0"]
    assert (role["state"], role["restarts"], role["machine"]) == ("running", 1, "there")
    assert role["waits"] == [{"what": "actor.act", "seconds": 2.0, "share": 0.5}]


def test_whoever_writes_into_this_log_directory_is_not_kept_twice(run, caplog):
    run.tell(run="run", failures=(fail(0),))
    assert run.places() == [] and "env0 failed" in caplog.text
    run.tell(owner="other", run="another")
    assert run.places() == ["there.envs"]


@pytest.mark.parametrize(
    ("host", "name", "place"),
    [
        ("worker-1.example.com", "envs-2", "worker-1.example.com.envs-2"),
        ("../../up", "envs", "_.._up.envs"),
        ("..", "..", "_._"),
        ("/etc", "a/b", "_etc.a_b"),
        ("\0\n", "é\ud7ff", "_._"),
        (".hidden", "-rf", "hidden.rf"),
        ("h" * 64, "n" * 64, f"{'h' * 50}.{'n' * 30}"),
    ],
)
def test_names_lead_nowhere_else(run, tmp_path, host, name, place):
    run.tell(host=host, name=name)
    assert run.places() == [place] and [path.name for path in tmp_path.iterdir()] == ["run"]
    joined = Joined(Folder(run.directory))
    joined.refresh()
    assert list(joined.roles) == [f"{place}/env0"]


@pytest.mark.parametrize(
    "facts",
    [
        {"owner": ""},
        {"session": ""},
        {"name": ""},
        {"host": ""},
        {"roles": {"../../up": RoleStatus()}},
        {"roles": {f"env{i}": RoleStatus(exit="x" * 255) for i in range(256)}},
    ],
)
def test_what_names_nobody_or_is_too_large_is_refused(run, facts):
    with pytest.raises(BadRequest):
        run.tell(**facts)
    assert run.places() == []


def test_two_of_the_same_name_have_a_directory_each_also_after_a_restart(run):
    run.tell("one", env_rate=1.0)
    run.tell("two", env_rate=2.0)
    run.make()
    run.tell("two", env_rate=3.0)
    run.tell("one", env_rate=4.0)
    assert [run.read(place)["env_rate"] for place in run.places()] == [4.0, 3.0]
    assert run.places() == ["there.envs", "there.envs-2"]


def test_the_directory_of_one_that_is_gone_is_taken_over(run):
    run.tell("one")
    run.make_older("there.envs", GONE_S + 1)
    run.make()
    run.tell("two", host="there")
    assert run.places() == ["there.envs"]
    assert (run.directory / "joined" / "there.envs" / "owner-there").read_text() == "two"


def test_files_are_not_written_all_the_time_but_an_end_always_is(run):
    run.tell(env_rate=1.0)
    run.tell(env_rate=2.0, pause_s=0.0)
    assert run.read()["env_rate"] == 1.0
    run.tell(state="stopped", pause_s=0.0)
    assert run.read()["state"] == "stopped"
    for state in ("running", "failed"):
        run.tell(state=state, pause_s=0.0)
    assert run.read()["state"] == "stopped"
    run.tell(state="running")
    assert run.read()["state"] == "running"


def test_too_many_machines_are_refused_until_others_are_silent(run):
    run.make(most=3)
    for number in range(3):
        run.tell(f"owner{number}", host=f"host{number}")
    with pytest.raises(BadRequest, match="3 machines have joined already"):
        run.tell("another", host="another")
    run.tell("owner0", host="host0", pause_s=SILENT_S)
    run.make_older("host1.envs", SILENT_S + 1)
    run.tell("another", host="another", pause_s=0.0)
    assert run.places() == ["another.envs", "host0.envs", "host2.envs"]


def test_directories_that_somebody_put_something_into_are_left(run):
    run.make(most=1)
    run.tell("one", host="first")
    (run.directory / "joined" / "first.envs" / "notes.txt").touch()
    (run.directory / "joined" / "envs").mkdir()
    run.make_older("first.envs", SILENT_S + 1)
    run.make(most=1)
    run.tell("two", host="second")
    assert run.places() == ["envs", "first.envs", "second.envs"]
    assert [path.name for path in (run.directory / "joined" / "first.envs").iterdir()] == ["notes.txt"]


def test_a_full_disk_costs_the_picture_only(run, monkeypatch, caplog):
    def fill(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(machines, "replace_file", fill)
        run.tell(failures=(fail(0),))
        run.tell()
    assert caplog.text.count("No space left on device") == 1 and "env0 failed" in caplog.text
    run.tell(env_rate=5.0)
    assert run.read()["env_rate"] == 5.0


def test_a_directory_that_cannot_be_made_costs_the_picture_only(run, caplog):
    run.directory.mkdir()
    (run.directory / "joined").touch()
    run.tell()
    assert "cannot be written" in caplog.text


def test_a_failure_is_logged_once_with_its_last_lines(run, caplog):
    run.tell(failures=(fail(0, lines=("one", "two\x1b[2J")),))
    run.tell(failures=(fail(0), fail(1, "env1")))
    run.tell(session="next", failures=(fail(0, "env2"),))
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == "there, envs: env0 failed: killed by SIGKILL\n    one\n    two [2J"
    assert [message.split()[2] for message in messages] == ["env0", "env1", "env2"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_machine_that_fails_all_the_time_does_not_fill_the_log(run, caplog):
    for number in range(3 * MOST_FAILURES):
        run.tell(failures=(fail(number),), pause_s=0.0)
    assert caplog.text.count("env0 failed") == MOST_FAILURES
    run.tell(failures=(fail(1000),), pause_s=FAILURES_S)
    assert f"({2 * MOST_FAILURES} more are not shown)" in caplog.text


def test_numbers_may_come_as_arrays(run):
    data = MachineStatus("me", "abc", "envs", host="there", roles=ROLES).to_data()
    run.machines.take({**data, "env_rate": np.array(3.5), "processes": np.array(1)}, {})
    assert run.read()["env_rate"] == 3.5
