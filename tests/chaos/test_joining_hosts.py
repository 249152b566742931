"""Workers join a run from other hosts, each a network namespace, with nothing but the file that its trainer wrote."""

import contextlib
import json
import shutil
import signal
import threading

import pytest
import zmq

import dreamfleet
from benchmarks.chaos import invariants
from benchmarks.chaos.fleet import PATIENCE_S, ChaosFleet
from benchmarks.chaos.host_fleet import LONG_CUT_S, ORDERLY, TRAINER
from benchmarks.chaos.hosts import Hosts
from tests.chaos.test_faults_in_a_fleet import check

pytestmark = [pytest.mark.chaos, pytest.mark.distributed, pytest.mark.timeout(1800)]

OPTIONS = {"agent": "dreamfleet.agent.random:RandomAgent", "run.remote_envs": True, "run.envs": 2}
ENVS_EACH = 2


class JoinedFleet(ChaosFleet):
    """A trainer on the first host; the others have their own copy of its file, and log directories of their own."""

    def __init__(self, root, hosts: Hosts):
        super().__init__(root, options=OPTIONS)
        self.hosts = hosts
        self.control.pace_s = 0.02

    def start(self) -> None:
        """Starts the trainer, or goes on with its run."""
        address = f"{self.hosts.addresses[TRAINER]}:5000"
        options = {**self._options, "run.actor_addr": address, "logdir": self.logdir}
        self._launch(TRAINER, "train", options=options, before=self.hosts.command(TRAINER))
        if not self._watcher.is_alive():
            self._watcher.start()

    def join(self, host: str, change=lambda invitation: invitation, **options) -> None:
        """Has a host join, with what the file of the run says, or what `change` makes of it."""
        file = self.root / f"{host}.json"
        self.eventually((self.logdir / "join.json").exists, "the file to join with")
        shutil.copyfile(self.logdir / "join.json", file)
        file.write_text(json.dumps(change(json.loads(file.read_text()))))
        options = {"envs": ENVS_EACH, "logdir": self.root / host, **options}
        self._launch(host, "join", str(file), options=options, before=self.hosts.command(host))

    def leave(self, host: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Has everything on a host end; returns the exit code of its command."""
        if number == signal.SIGTERM:
            self._processes[host].send_signal(number)
        else:
            self.hosts.signal(host, number)
        code = self._processes.pop(host).wait(PATIENCE_S)
        self.eventually(lambda: not self.hosts.pids(host), f"the end of all processes on {host}")
        return code

    def give_up(self, host: str) -> str:
        """Waits for the end of a host that is not let in; returns what it said."""
        assert self._processes.pop(host).wait(PATIENCE_S) in (1, 2), self.output(host)
        return self.output(host)

    def wait_for(self, *hosts: str) -> None:
        """Waits until every environment of these hosts has made steps from now on, and the run has trained on."""
        before = {host: self._steps(host) for host in hosts}

        def have_worked() -> bool:
            now = {host: self._steps(host) for host in hosts}
            return all(len(now[host]) == ENVS_EACH and self._is_ahead(now[host], before[host]) for host in hosts)

        self.eventually(have_worked, f"work of all environments on {', '.join(hosts)}")
        self.wait_training(50)

    def close(self) -> None:
        super().close()
        for host in self.hosts.addresses:
            self.hosts.signal(host, signal.SIGKILL)

    def _is_ahead(self, now: dict[str, tuple], before: dict[str, tuple]) -> bool:
        """Whether all roles have made steps; those of a new process are counted from 0."""
        return all(steps > 0 and (pid, steps) > before.get(role, (pid, 0)) for role, (pid, steps) in now.items())

    def _steps(self, host: str) -> dict[str, tuple]:
        with contextlib.suppress(OSError, ValueError, KeyError):
            roles = json.loads((self.root / host / "joined" / "envs" / "status.json").read_text())["roles"]
            return {name: (role["pid"], role["figures"]["steps"]) for name, role in roles.items()}
        return {}


@pytest.mark.parametrize("workers", [("one",), ("one", "two", "three")], ids=["two-hosts", "four-hosts"])
def test_hosts_join_leave_and_come_back(tmp_path, workers):
    first, *late = workers
    with Hosts((TRAINER, *workers)) as hosts, JoinedFleet(tmp_path, hosts) as fleet:
        fleet.join(first)
        fleet.wait_for(first)
        for host in late:
            fleet.join(host)
        fleet.wait_for(*workers)
        count = len(workers)
        fleet.eventually(lambda: len(fleet.status()["machines"]) == count, "all machines in one picture")
        assert fleet.leave(first) in ORDERLY  # and comes back
        fleet.join(first)
        fleet.wait_for(*workers)
        hosts.cut(first, True)
        threading.Event().wait(LONG_CUT_S)
        if late:
            fleet.wait_for(*late)  # which go on without it
        hosts.cut(first, False)
        fleet.wait_for(*workers)
        fleet.leave(first, signal.SIGKILL)  # both ends restart, the host as after a loss of power
        fleet.leave(TRAINER, signal.SIGKILL)
        fleet.start()
        fleet.join(first)
        fleet.wait_for(*workers)
        assert fleet.leave(TRAINER) in ORDERLY
        for host in workers:
            assert fleet.leave(host) in ORDERLY
        verdict = invariants.check_data(fleet)
        invariants.check_ended(fleet, verdict)
        check(verdict)


def test_whoever_does_not_fit_is_refused_and_told_why(tmp_path):
    with Hosts((TRAINER, "one", "two")) as hosts, JoinedFleet(tmp_path, hosts) as fleet:
        fleet.join("one")
        fleet.wait_for("one")
        other_key = "\n".join(part.decode() for part in zmq.curve_keypair())
        fleet.join("two", lambda invitation: {**invitation, "key": other_key}, **{"run.join_timeout": 15})
        assert "does not let us in: is " in fleet.give_up("two")
        fleet.join("two", lambda invitation: {**invitation, "package": "0.0.1"})
        assert f"is of dreamfleet 0.0.1, but this is {dreamfleet.__version__}" in fleet.give_up("two")
        fleet.wait_for("one")
