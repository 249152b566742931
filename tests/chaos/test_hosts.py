"""A fleet over five hosts, each of them a network namespace: nothing is lost when one is killed, stopped or cut off."""

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from benchmarks.chaos import invariants
from benchmarks.chaos.host_fleet import HOSTS, HostFleet, make_host_faults
from benchmarks.chaos.hosts import Hosts
from dreamfleet import rpc
from tests.chaos.test_faults_in_a_fleet import check

pytestmark = [pytest.mark.chaos, pytest.mark.distributed]

RANDOM = {"agent": "dreamfleet.agent.random:RandomAgent"}  # compiles nothing, so that the time is that of the faults
CUT_S = 50.0  # long enough for the kernel to make long pauses between its attempts to connect
BACK_S = 12.0  # as documented


def test_faults_of_hosts(tmp_path):
    """Every host is hit once, by one kind of fault each, and the run is stopped and resumed."""
    with Hosts(HOSTS) as hosts, HostFleet(tmp_path, hosts, RANDOM) as fleet:
        fleet.control.pace_s = 0.02
        fleet.wait_training()
        table = make_host_faults(fleet, np.random.default_rng(0))
        for name in (
            "kill host replay",
            "kill launcher worker1",
            "cut logger for long",
            "unplug worker2",
            "stop host trainer",
            "stop and resume",
        ):
            table[name]()
        fleet.wait_training(200)
        fleet.stop()
        assert fleet.stops == 2 and not fleet.unsaved_stops
        verdict = invariants.check_data(fleet)
        invariants.check_ended(fleet, verdict)
        check(verdict)


def test_calls_are_answered_soon_after_a_silent_cut(tmp_path):
    key_file = tmp_path / "run.key"
    rpc.make_key(key_file)
    with Hosts(("near", "far")) as hosts, contextlib.ExitStack() as stack:
        addr = f"{hosts.addresses['far']}:5000"
        start(stack, hosts.command("far"), "server_process.py", addr, "zmq", str(key_file))
        client = start(stack, hosts.command("near"), "client_process.py", addr, "zmq", str(key_file))
        hosts.cut("near", True)
        threading.Event().wait(CUT_S)
        hosts.cut("near", False)
        client.stdin.write(f"{BACK_S}\n")
        client.stdin.flush()
        assert client.stdout.readline() == "answered\n"


def start(stack, before, script, *args):
    """A process of the tests of rpc, which is killed in the end; returns when it is ready."""
    command = [*before, sys.executable, str(Path(__file__).parents[1] / "rpc" / script), *args]
    process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    assert process.stdout.readline() == "ready\n"
    return process
