"""Machines that join with a log directory of their own are in the trainer's status, and what fails there in its log."""

import json
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

import dreamfleet
from dreamfleet.launch.supervise.status import read_status
from dreamfleet.roles import protocol
from dreamfleet.roles.actor.role import Actor
from dreamfleet.rpc.keys import make_key
from dreamfleet.testing import CountingAgent, CountingEnv
from tests.fleet import DEADLINE_S, RunningFleet, eventually, free_port, make_args, running_fleet
from tests.roles.test_elsewhere import SCRIPT_START

pytestmark = pytest.mark.distributed

SCRIPT = SCRIPT_START + textwrap.dedent("""
    import functools
    from tests.roles.test_one_picture import FaultyEnv

    make_env = functools.partial(FaultyEnv, fault=json.loads(sys.argv[1])["key_file"] + ".fault")
    parallel.parallel_envs(make_env, make_env, args)
""")
HOST = socket.gethostname()[:64]
PLACE = f"{HOST}.envs"
ENDLESS = {"remote_envs": True, "envs": 2, "eval_envs": 0, "steps": 0, "max_restarts": 0}


class FaultyEnv(CountingEnv):
    """Cannot be built as long as a file is there, which it is once."""

    def __init__(self, index: int, fault: str):
        super().__init__(index)
        if Path(fault).exists():
            Path(fault).unlink()
            raise RuntimeError("the simulator has no licence")


def forget_status() -> CountingAgent:
    """An agent in whose process the policy server does not know how to take a status."""
    methods = Actor.methods
    Actor.methods = lambda self: {k: v for k, v in methods(self).items() if k != protocol.STATUS}
    return CountingAgent()


class Worker:
    """Environments in processes of their own, as on another machine."""

    def __init__(self, tmp_path: Path):
        make_key(tmp_path / "run.key")
        self.options = {"actor_addr": f"localhost:{free_port()}", "key_file": str(tmp_path / "run.key")}
        self.fault = Path(f"{tmp_path}/run.key.fault")
        self.process: subprocess.Popen | None = None

    def start(self, logdir: Path) -> None:
        words = json.dumps({**self.options, "logdir": str(logdir), "envs": 2, "eval_envs": 0})
        self.process = subprocess.Popen([sys.executable, "-c", SCRIPT, words], stderr=subprocess.PIPE, text=True)

    def stop(self) -> str:
        """Ends it in order; returns what it said was wrong."""
        assert self.process
        self.process.terminate()
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0, errors
        return errors

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def worker(tmp_path):
    worker = Worker(tmp_path)
    yield worker
    worker.kill()


def wait_machine(fleet: RunningFleet, is_so=lambda machine: True, place: str = PLACE) -> dict:
    """Waits until a machine that has joined is as expected; returns what the trainer's status says of it."""

    def look() -> dict | None:
        machine = fleet.status().get("machines", {}).get(place)
        return machine if machine and is_so(machine) else None

    return eventually(look, f"the machine {place}")


def is_running(machine: dict) -> bool:
    return machine["state"] == "running" and {role["state"] for role in machine["roles"].values()} == {"running"}


def wait_log(fleet: RunningFleet, text: str) -> str:
    log = fleet.logdir / "logs" / "agent.log"
    eventually(lambda: log.exists() and text in log.read_text(), f"{text!r} in {log}")
    return log.read_text()


def test_a_machine_that_joined_is_seen_and_what_fails_there_is_told(tmp_path, worker):
    with running_fleet(make_args(tmp_path / "run", **worker.options, **ENDLESS)) as fleet:
        worker.start(tmp_path / "there")
        machine = wait_machine(fleet, is_running)
        assert (machine["host"], machine["package"]) == (HOST, dreamfleet.__version__)
        assert machine["protocol"] == protocol.VERSION and machine["processes"] == 2
        assert machine["roles"].keys() == {"env0", "env1"} and machine["seen_s"] >= 0
        wait_machine(fleet, lambda machine: machine["env_rate"] > 0 and machine["roles"]["env0"]["figures"]["steps"])

        worker.fault.touch()
        psutil.Process(machine["roles"]["env0"]["pid"]).kill()
        wait_log(fleet, f"{HOST}, envs: env0 failed: killed by SIGKILL")
        text = wait_log(fleet, f"{HOST}, envs: env0 failed: RuntimeError: the simulator has no licence")
        lines = text[text.index("env0 failed: RuntimeError") :].splitlines()
        assert any("in __init__" in line for line in lines), "the end of its log has the traceback"
        again = wait_machine(fleet, lambda machine: is_running(machine) and machine["roles"]["env0"]["restarts"] == 2)
        assert (
            again["roles"]["env1"]["restarts"] == 0 and again["roles"]["env1"]["pid"] == machine["roles"]["env1"]["pid"]
        )

        # In a process of its own: what the fleet prints here is apart from its lines.
        command = [sys.executable, "-m", "dreamfleet", "status", str(fleet.logdir)]
        run, line = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        assert "1 machine joined (2 processes)" in run
        assert line.startswith(f"{PLACE}: running") and "2/2 running, 2 restarts" in line

        worker.stop()
        wait_machine(fleet, lambda machine: machine["state"] == "stopped")
        fleet.kill_to_end("agent")
    text = (tmp_path / "run" / "logs" / "agent.log").read_text()
    assert text.count("env0 failed: killed by SIGKILL") == text.count("env0 failed: RuntimeError") == 1


def test_a_machine_that_shares_the_log_directory_is_seen_once(tmp_path, worker):
    with running_fleet(make_args(tmp_path / "run", **worker.options, **ENDLESS)) as fleet:
        eventually((tmp_path / "run" / "run.id").exists, "the run")
        worker.start(tmp_path / "run")
        machine = wait_machine(fleet, is_running, "envs")
        assert (machine["host"], machine["package"]) == (HOST, dreamfleet.__version__)
        psutil.Process(machine["roles"]["env1"]["pid"]).kill()
        wait_log(fleet, f"{HOST}, envs: env1 failed: killed by SIGKILL")
        wait_machine(fleet, lambda machine: is_running(machine) and machine["roles"]["env1"]["restarts"], "envs")
        assert fleet.status()["machines"].keys() == {"envs"}
        worker.stop()
        fleet.kill_to_end("agent")
    assert [path.name for path in (tmp_path / "run" / "joined").iterdir()] == ["envs"]


def test_a_trainer_that_does_not_know_the_message_does_not_hinder_anybody(tmp_path, worker):
    place = tmp_path / "there" / "joined" / "envs"
    with running_fleet(make_args(tmp_path / "run", **worker.options, **ENDLESS), forget_status) as fleet:
        worker.start(tmp_path / "there")
        wait_log(fleet, "refused a call of 'status': there is no such method")
        eventually(lambda: is_running(read_status(place)), "its environments")
        fleet.wait_step(fleet.step() + 200)
        status = read_status(place)
        assert is_running(status) and not any(role["restarts"] for role in status["roles"].values())
        assert worker.stop() == ""
        fleet.kill_to_end("agent")
    assert not (tmp_path / "run" / "joined").exists()
