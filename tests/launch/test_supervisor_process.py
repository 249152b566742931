"""The supervisor as a process of its own: signals, sudden death, and a user's `__main__`."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dreamfleet.launch.supervise.status import read_status
from tests.fleet import DEADLINE_S, eventually

pytestmark = pytest.mark.distributed


class Script:
    """A running `user_script.py`, read line by line."""

    def __init__(self, logdir: Path, scenario: str, timeout_s: float):
        self.logdir = logdir
        script = str(Path(__file__).with_name("user_script.py"))
        command = [sys.executable, script, str(logdir), scenario, str(timeout_s)]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.lines: list[str] = []

    def read_until(self, *patterns: str) -> list[re.Match]:
        """Reads until each pattern has matched a line; returns the matches in the order of the patterns."""
        found: dict[str, re.Match] = {}
        assert self.popen.stdout
        for line in self.popen.stdout:
            self.lines.append(line.rstrip())
            for pattern in patterns:
                if match := re.search(pattern, line):
                    found.setdefault(pattern, match)
            if len(found) == len(patterns):
                return [found[pattern] for pattern in patterns]
        raise AssertionError(f"ended without {set(patterns) - set(found)}: {self.lines}")

    def read_to_end(self) -> int:
        assert self.popen.stdout
        self.lines += [line.rstrip() for line in self.popen.stdout]
        return self.popen.wait(DEADLINE_S)


@pytest.fixture
def start_script(tmp_path):
    scripts = []

    def start(scenario: str, timeout_s: float = 60.0) -> Script:
        scripts.append(Script(tmp_path, scenario, timeout_s))
        return scripts[-1]

    yield start
    for script in scripts:
        script.popen.kill()
        script.popen.wait()
        script.popen.stdout.close()


def test_factories_of_main_work_and_main_is_not_run_again(start_script):
    script = start_script("complete")
    assert script.read_to_end() == 0
    assert "main|info|hello from main" in script.lines
    assert script.lines[-1] == "returned|"
    assert (script.logdir / "runs_of_main").read_text() == f"{script.popen.pid}\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_the_main_role_first(start_script, is_gone, number):
    script = start_script("stop")
    ready = script.read_until(r"main\|info\|ready pid=(\d+)", r"other\|info\|ready pid=(\d+)")
    os.kill(script.popen.pid, number)
    assert script.read_to_end() == 0
    stopped = [line for line in script.lines if line.endswith("stopped")]
    assert stopped == ["main|info|stopped", "other|info|stopped"]
    assert script.lines[-1] == f"returned|{number.name}"
    assert all(is_gone(int(match[1])) for match in ready)


def test_terminal_interrupt_does_not_reach_the_roles(start_script):
    script = start_script("stop")
    script.read_until(r"main\|info\|ready", r"other\|info\|ready")
    os.killpg(script.popen.pid, signal.SIGINT)
    assert script.read_to_end() == 0
    assert "other|info|stopped" in script.lines


def test_signal_to_every_process_is_an_orderly_stop(start_script):
    """What a cluster does when it takes the machine away."""
    script = start_script("stop")
    ready = script.read_until(r"main\|info\|ready pid=(\d+)", r"other\|info\|ready pid=(\d+)")
    for pid in (*(int(match[1]) for match in ready), script.popen.pid):
        os.kill(pid, signal.SIGTERM)
    assert script.read_to_end() == 0
    stopped = [line for line in script.lines if line.endswith("stopped")]
    assert stopped == ["main|info|stopped", "other|info|stopped"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_of_a_stop_tells_its_cost_and_the_next_one_kills(start_script, is_gone, number):
    script = start_script("stubborn")
    (pids,) = script.read_until(r"descendants (\d+) (\d+) pid=(\d+)")
    os.kill(script.popen.pid, number)
    script.read_until(rf"supervisor\|info\|stopping: {number.name}")
    os.kill(script.popen.pid, signal.SIGTERM)  # schedulers may repeat it, and mean no more by that
    os.kill(script.popen.pid, signal.SIGINT)
    script.read_until(r"supervisor\|warning\|Ctrl-C again kills at once: nothing is saved")
    assert script.popen.poll() is None
    os.kill(script.popen.pid, signal.SIGINT)
    assert script.read_to_end() == 0
    assert "supervisor|warning|Ctrl-C again: killing all roles" in script.lines
    assert not any("did not stop within" in line for line in script.lines)
    assert all(is_gone(int(pid)) for pid in pids.groups())


def test_nothing_outlives_a_killed_supervisor(start_script, is_gone):
    """One role stops by itself, one is stopped by SIGSTOP, one does not stop and has descendants."""
    script = start_script("tree")
    main, polite, stubborn = script.read_until(
        r"main\|info\|ready pid=(\d+)",
        r"polite\|info\|ready pid=(\d+)",
        r"stubborn\|info\|descendants (\d+) (\d+) pid=(\d+)",
    )
    os.kill(int(polite[1]), signal.SIGSTOP)
    script.popen.kill()
    pids = [int(pid) for match in (main, polite, stubborn) for pid in match.groups()]
    assert all(is_gone(pid) for pid in pids)
    assert "the supervisor has exited" in (script.logdir / "logs/polite.log").read_text()


def test_frozen_role_does_not_outlive_a_killed_supervisor(start_script, is_gone):
    script = start_script("frozen", 5.0)
    (ready,) = script.read_until(r"main\|info\|ready pid=(\d+)")
    script.popen.kill()
    assert is_gone(int(ready[1]))


@pytest.fixture
def gate(tmp_path):
    """What the main role of the script waits for."""
    os.mkfifo(tmp_path / "gate")
    fd = os.open(tmp_path / "gate", os.O_RDWR)
    yield fd
    os.close(fd)


def pause(script: Script, roles: list[int], seconds: float) -> None:
    """What a paused machine does to all of them; the supervisor has looked at the roles before they go on."""
    for pid in (*roles, script.popen.pid):
        os.kill(pid, signal.SIGSTOP)
    resume_at = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > resume_at, "the end of the pause")
    script.popen.send_signal(signal.SIGCONT)
    wait_for_looks(script, 0.0)
    for pid in roles:
        os.kill(pid, signal.SIGCONT)


def wait_for_looks(script: Script, seconds: float) -> None:
    """Until the supervisor has looked at its roles, so many seconds from now, or has ended."""
    start = time.time()
    eventually(lambda: script.popen.poll() is not None or read_status(script.logdir)["time"] > start + seconds, "looks")


@pytest.mark.parametrize("phase", ["running", "stopping"])
def test_a_pause_of_everything_that_is_longer_than_all_timeouts_harms_nobody(start_script, gate, phase):
    """Longer than the timeout of heartbeats, the time limit of a piece of work, and the grace of a stop."""
    timeout_s, pause_s = 12.0, 16.0
    script = start_script("pause", timeout_s)
    ready = script.read_until(r"main\|info\|ready pid=(\d+)", r"other\|info\|ready pid=(\d+)")
    if phase == "stopping":
        os.kill(script.popen.pid, signal.SIGTERM)
        # The request has reached it by then: if it came later, it would wake the stopped process.
        eventually(lambda: read_status(script.logdir)["roles"]["main"]["state"] == "stopping", "the request to stop")
    pause(script, [int(match[1]) for match in ready], pause_s)
    wait_for_looks(script, 3.0)
    os.write(gate, b"x")
    assert script.read_to_end() == 0
    assert not any("killing" in line or "killed" in line for line in script.lines), script.lines
    assert [role["restarts"] for role in read_status(script.logdir)["roles"].values()] == [0, 0]
    # To read the stacks of a healthy process may crash it.
    assert not any("most recent call first" in log.read_text() for log in (script.logdir / "logs").iterdir())
