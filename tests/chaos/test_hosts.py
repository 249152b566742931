"""A fleet over five hosts, each of them a network namespace: nothing is lost when one is killed, stopped or cut off."""

import numpy as np
import pytest

from benchmarks.chaos import invariants
from benchmarks.chaos.host_fleet import HOSTS, HostFleet, make_host_faults
from benchmarks.chaos.hosts import Hosts
from tests.chaos.test_faults_in_a_fleet import check

pytestmark = [pytest.mark.chaos, pytest.mark.distributed]

RANDOM = {"agent": "dreamfleet.agent.random:RandomAgent"}  # compiles nothing, so that the time is that of the faults


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
