"""Machines that have joined a run: what its status says of them, and what they tell."""

import dataclasses
import json
import os
import queue
import threading

import pytest

from dreamfleet.base.joined import GONE_S, SILENT_S
from dreamfleet.launch import reporting
from dreamfleet.launch.machines import MOST_ROLES, JoinedMachines, to_message
from dreamfleet.launch.reporting import Reporter, fit, read_last_lines
from dreamfleet.launch.supervise.role_record import Cause
from dreamfleet.options import read_args
from dreamfleet.roles.hello import Reception, make_hello
from dreamfleet.roles.protocol import (
    LAST_LINES,
    LINE_BYTES,
    STATUS_BYTES,
    STATUS_ROLES,
    MachineStatus,
    RoleFailure,
    RoleStatus,
)
from dreamfleet.roles.protocol import STATUS as STATUS_METHOD
from dreamfleet.roles.wiring import serve
from dreamfleet.rpc.keys import make_key
from tests.fleet import DEADLINE_S, eventually, free_port, make_args

ROLE = {
    "pid": 7,
    "host": "",
    "state": "running",
    "restarts": 2,
    "hangs": 0,
    "heartbeat_age_s": None,
    "beat_age_s": 0.1,
    "waits": [{"what": "actor.act", "seconds": 2.0, "share": 0.5}],
    "figures": {"steps": 100, "envs": 1},
    "cpu": None,
    "memory_mb": 80.5,
    "exit": None,
    "since": 3.5,
}
STATUS = {"time": 1.0, "state": "running", "elapsed_s": 5.0, "supervisor": 3, "host": "there", "package": "1.0"}


def write(logdir, place: str, age_s: float = 0.0, content: bytes = b"", **status) -> None:
    path = logdir / "joined" / place / "status.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content or json.dumps({**STATUS, "roles": {"env0": ROLE}, **status}).encode())
    changed = path.stat().st_mtime - age_s
    os.utime(path, (changed, changed))


def test_a_machine_is_described_by_its_file(tmp_path):
    machines = JoinedMachines(tmp_path)
    assert machines.describe() == {}
    write(tmp_path, "there.envs", protocol=4, env_rate=20.5)
    (found,) = machines.describe().values()
    assert (found["host"], found["package"], found["protocol"], found["state"]) == ("there", "1.0", 4, "running")
    assert (found["env_rate"], found["processes"]) == (20.5, 1) and 0 <= found["seen_s"] < SILENT_S
    role = found["roles"]["env0"]
    assert (role["pid"], role["restarts"], role["figures"]) == (7, 2, {"steps": 100, "envs": 1})
    assert list(role["waits"]) == ROLE["waits"] and "exit" not in role
    write(tmp_path, "there.envs", state="stopping")
    assert machines.describe()["there.envs"]["state"] == "stopping"


def test_who_is_silent_is_marked_and_who_is_gone_is_left_out(tmp_path):
    write(tmp_path, "silent", SILENT_S + 1)
    write(tmp_path, "ended", SILENT_S + 1, state="stopped")
    write(tmp_path, "gone", GONE_S + 1)
    machines = JoinedMachines(tmp_path).describe()
    assert {name: machine["state"] for name, machine in machines.items()} == {"silent": "silent", "ended": "stopped"}


@pytest.mark.parametrize(
    "content",
    [
        *(b"{", b"[]", b"3", b"\xff", b"[" * 100_000, b"{}", b'{"roles": 3}', b'{"roles": {"a": 3}}'),
        b'{"roles": {"a": {"waits": 3}}}',
        json.dumps({"state": "x" * 100, "roles": {}}).encode(),
        json.dumps({"roles": {"env0": {**ROLE, "restarts": "many"}}}).encode(),
    ],
)
def test_what_is_no_status_is_left_out(tmp_path, content):
    write(tmp_path, "good")
    write(tmp_path, "bad", content=content)
    (tmp_path / "joined" / "run.key").write_text("SECRET")
    (tmp_path / "joined" / ".hidden").mkdir()
    assert JoinedMachines(tmp_path).describe().keys() == {"good"}


def test_the_status_of_a_run_stays_small(tmp_path):
    roles = {f"env{i}": ROLE for i in range(STATUS_ROLES)}
    for number in range(8):
        write(tmp_path, f"host{number}", roles=roles)
    machines = JoinedMachines(tmp_path).describe()
    assert {machine["processes"] for machine in machines.values()} == {STATUS_ROLES} and len(machines) == 8
    assert sum(len(machine["roles"]) for machine in machines.values()) == MOST_ROLES


def test_a_message_has_what_does_not_run_first_and_says_how_many_there_are():
    roles = {f"env{i}": ROLE for i in range(STATUS_ROLES)} | {"last": {**ROLE, "state": "dead", "exit": "é" * 500}}
    message = to_message({**STATUS, "roles": roles})
    assert message.processes == STATUS_ROLES + 1 and len(message.roles) == STATUS_ROLES
    assert next(iter(message.roles)) == "last" and len(message.roles["last"].exit or "") == 127
    assert MachineStatus.from_data(message.to_data()) == message


def test_a_message_is_cut_to_its_largest_size():
    failures = tuple(RoleFailure(i, "env0", "x", ("y" * LINE_BYTES,) * LAST_LINES) for i in range(2))
    message = MachineStatus(roles={f"env{i}": RoleStatus(exit="z" * 255) for i in range(256)}, failures=failures)
    short = fit(message)
    assert short.count_bytes() <= STATUS_BYTES and short.failures == failures and len(short.roles) >= 64
    assert fit(short) is short
    escaped = tuple(dataclasses.replace(failure, lines=("\x01" * LINE_BYTES,) * LAST_LINES) for failure in failures)
    assert fit(dataclasses.replace(message, failures=escaped)).count_bytes() <= STATUS_BYTES


def test_the_end_of_a_log_is_short_and_printable(tmp_path):
    log = tmp_path / "env0.log"
    assert read_last_lines(log) == ()
    log.write_bytes(b"first\n" * 5000 + b"\x1b[2Jtab\there\n\n\xff" + b"x" * 5000 + b"\nlast\n")
    lines = read_last_lines(log)
    assert len(lines) == LAST_LINES and lines[0] == "first" and lines[-1] == "last"
    assert lines[-3] == " [2Jtab here" and lines[-2].startswith("\ufffdxx")
    assert max(len(line.encode()) for line in lines) == LINE_BYTES


@pytest.mark.parametrize("transport", ["auto", "portal"])
def test_a_failure_and_the_end_are_told_at_once(tmp_path, monkeypatch, transport):
    monkeypatch.setattr(reporting, "EVERY_S", 1e5)
    addr = f"ipc:{tmp_path}/s" if transport == "auto" else f"localhost:{free_port()}"
    options = read_args(make_args(tmp_path, actor_addr=addr, transport=transport))
    reports: queue.Queue[MachineStatus] = queue.Queue()
    methods = {STATUS_METHOD: lambda data, _: reports.put(MachineStatus.from_data(data)) or {}}
    server = serve(options, "actor", methods, Reception(options, lambda: make_hello(options, "actor")))
    with server, Reporter(options, tmp_path / "envs") as reporter:
        eventually(lambda: reporter._client and reporter._client.connected, "a connection")
        reporter.update({**STATUS, "roles": {"env0": ROLE}})
        for number in range(3):
            reporter.add_failure(Cause(f"env{number}", "killed by SIGKILL", "", 0.0), tmp_path / "missing.log")
        told: set[str] = set()
        while len(told) < 3:
            report = reports.get(timeout=DEADLINE_S)
            told |= {failure.role for failure in report.failures}
        assert (report.name, report.host, report.state) == ("envs", "there", "running")
        reporter.update({**STATUS, "state": "failed", "roles": {"env0": ROLE}})
        while report.state != "failed":
            report = reports.get(timeout=DEADLINE_S)
            assert not report.failures, "each is told until it was answered for"


def test_a_run_that_is_away_is_not_waited_for(tmp_path, capfd):
    make_key(tmp_path / "run.key")
    args = make_args(tmp_path, actor_addr=f"localhost:{free_port()}", key_file=str(tmp_path / "run.key"))
    with Reporter(read_args(args), tmp_path / "envs") as reporter:
        reporter.add_failure(Cause("env0", "killed by SIGKILL", "", 0.0), tmp_path / "missing.log")
        for state in ("running", "stopped"):
            reporter.update({**STATUS, "state": state, "roles": {"env0": ROLE}})
    assert "reporting" not in {thread.name for thread in threading.enumerate()}
    assert capfd.readouterr() == ("", "")


def test_who_does_not_know_where_the_policy_server_is_tells_nobody(tmp_path):
    with Reporter(read_args(make_args(tmp_path)), tmp_path / "replay") as reporter:
        assert "reporting" not in {thread.name for thread in threading.enumerate()}
        reporter.update({**STATUS, "roles": {"replay": ROLE}})
