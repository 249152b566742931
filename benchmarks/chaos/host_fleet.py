"""A fleet over five hosts: trainer, replay, logger and two with environments; and the faults that only hosts have."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chaos import faults
from benchmarks.chaos.fleet import ENVS, PATIENCE_S, ChaosError, ChaosFleet
from benchmarks.chaos.hosts import Hosts
from dreamfleet.checkpoint import Checkpoints

PORTS = {"actor": 5000, "replay": 5001, "logger": 5002}
TRAINER, REPLAY, LOGGER, WORKERS = "trainer", "replay", "logger", ("worker1", "worker2")
HOSTS = (TRAINER, REPLAY, LOGGER, *WORKERS)
ENVS_EACH = ENVS // len(WORKERS)
STOPPED_S = 5.0
SHORT_CUT_S, LONG_CUT_S = 3.0, 20.0  # the second is longer than it takes to find a link dead
REBOOT_S = 1.0


class HostFleet(ChaosFleet):
    """Every host has a log directory of its own; what is started on it is started again when it was killed."""

    def __init__(self, root: Path, hosts: Hosts, options: dict[str, Any] | None = None):
        super().__init__(root, options=options)
        self.hosts = hosts
        self.replay_logdir = root / REPLAY
        self.logger_logdir = root / LOGGER
        self.stops = 0
        self.unsaved_stops: list[str] = []

    def start(self) -> None:
        """Starts whatever does not run yet."""
        for host in HOSTS:
            if host not in self._processes:
                self.boot(host)
        if not self._watcher.is_alive():
            self._watcher.start()

    def boot(self, host: str) -> None:
        """Starts what belongs on a host."""
        addresses = {role: f"{self.hosts.addresses[place]}:{PORTS[role]}" for role, place in _PLACES.items()}
        if host == TRAINER:
            remote = {f"run.remote_{part}": True for part in ("replay", "logger", "envs")}
            listening = {f"run.{role}_addr": address for role, address in addresses.items()}
            words, options = ["train"], {**self._options, **remote, **listening, "logdir": self.logdir}
        else:
            self.eventually((self.logdir / "run.key").exists, "the key of the run")
            joining = {f"addr-{role}": address for role, address in addresses.items()}
            joining |= {"key": self.logdir / "run.key", "logdir": self.root / host}
            words, options = ["role", host], {**self._options, **joining}
            if host in WORKERS:
                first = ENVS_EACH * WORKERS.index(host)
                words, options = ["role", "envs", "--index", str(first)], {**options, "run.envs": ENVS_EACH}
        self._launch(host, *words, options=options, before=self.hosts.command(host))

    def stop(self) -> str:
        """Ends the run in order, then what joined it."""
        self.stop_trainer()
        for host in [host for host in HOSTS if host in self._processes]:
            self._end(host)
        return self.output(TRAINER)

    def stop_trainer(self) -> None:
        """Ends the run in order; it must leave a checkpoint behind."""
        before = self._newest_checkpoint()
        self._end(TRAINER)
        self.stops += 1
        if self._newest_checkpoint() == before:
            self.unsaved_stops.append(self.output(TRAINER)[-1500:])

    def forget(self, host: str) -> None:
        """Waits for the end of what was killed on a host, without anybody left of it."""
        self._processes.pop(host).wait(PATIENCE_S)
        self.eventually(lambda: not self.hosts.pids(host), f"the end of all processes on {host}")

    def kill_launcher(self, host: str) -> None:
        """Kills the one process that started all others of the host."""
        self._processes[host].kill()

    def close(self) -> None:
        super().close()
        for host in HOSTS:
            self.hosts.signal(host, signal.SIGKILL)

    def _end(self, host: str) -> None:
        process = self._processes.pop(host)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        if process.wait(PATIENCE_S) not in ORDERLY:
            raise ChaosError(f"{host} ended with code {process.returncode}:\n{self.output(host)[-3000:]}")
        self.eventually(lambda: not self.hosts.pids(host), f"the end of all processes on {host}")

    def _newest_checkpoint(self) -> str:
        checkpoint = Checkpoints(self.logdir).latest()
        return checkpoint.name if checkpoint else ""


_PLACES = {"actor": TRAINER, "replay": REPLAY, "logger": LOGGER}
ORDERLY = (0, 128 + signal.SIGTERM)
ROLES_OF = {
    TRAINER: ("agent",),
    REPLAY: ("replay",),
    LOGGER: ("logger",),
    **{host: tuple(f"env{i}" for i in range(n * ENVS_EACH, (n + 1) * ENVS_EACH)) for n, host in enumerate(WORKERS)},
}


def wait_all(fleet: ChaosFleet) -> float:
    """Waits until every role of every host has worked since now; returns how long it took."""
    start = time.monotonic()
    checks = {role: faults.watch_work(fleet, role) for roles in ROLES_OF.values() for role in roles}
    for role, has_worked in checks.items():
        fleet.eventually(has_worked, f"{role} works again", RECOVERY_S)
    return time.monotonic() - start


RECOVERY_S = 300.0  # of everybody, after a fault that may have hit everybody


def kill_host(fleet: HostFleet, host: str) -> float:
    """Everything on a host is killed at once, and started again as after a reboot."""
    fleet.hosts.signal(host, signal.SIGKILL)
    return _reboot(fleet, host)


def kill_launcher(fleet: HostFleet, host: str) -> float:
    """The launcher of a host is killed; what it had started ends by itself."""
    fleet.kill_launcher(host)
    return _reboot(fleet, host)


def stop_host(fleet: HostFleet, host: str) -> float:
    """Everything on a host stands still for a while, as in a paused virtual machine."""
    fleet.hosts.signal(host, signal.SIGSTOP)
    threading.Event().wait(STOPPED_S)
    fleet.hosts.signal(host, signal.SIGCONT)
    return wait_all(fleet)


def cut_host(fleet: HostFleet, host: str, seconds: float) -> float:
    """Packets from and to a host get lost for a while."""
    fleet.hosts.cut(host, True)
    threading.Event().wait(seconds)
    fleet.hosts.cut(host, False)
    return wait_all(fleet)


def unplug_host(fleet: HostFleet, host: str) -> float:
    """The link of a host is down for a while."""
    fleet.hosts.unplug(host, True)
    threading.Event().wait(SHORT_CUT_S)
    fleet.hosts.unplug(host, False)
    return wait_all(fleet)


def resume(fleet: HostFleet) -> float:
    """The run is stopped in order and resumed; the other hosts wait for it."""
    fleet.stop_trainer()
    fleet.start()
    return wait_all(fleet)


def make_host_faults(fleet: HostFleet, rng: np.random.Generator) -> dict[str, Callable[[], float]]:
    """Every fault of a fleet over hosts, by name."""
    table: dict[str, Callable[[], float]] = {"stop and resume": lambda: resume(fleet)}
    for host in HOSTS:
        role = str(rng.choice(ROLES_OF[host]))
        table |= {
            f"kill {role} on {host}": lambda role=role: _then_all(fleet, faults.kill, role),
            f"stop {role} on {host}": lambda role=role: _then_all(fleet, faults.stop, role),
            f"kill host {host}": lambda host=host: kill_host(fleet, host),
            f"kill launcher {host}": lambda host=host: kill_launcher(fleet, host),
            f"stop host {host}": lambda host=host: stop_host(fleet, host),
            f"cut {host} briefly": lambda host=host: cut_host(fleet, host, SHORT_CUT_S),
            f"cut {host} for long": lambda host=host: cut_host(fleet, host, LONG_CUT_S),
            f"unplug {host}": lambda host=host: unplug_host(fleet, host),
        }
    return table


def _then_all(fleet: HostFleet, fault: Callable[[ChaosFleet, str], float], role: str) -> float:
    return fault(fleet, role) + wait_all(fleet)


def _reboot(fleet: HostFleet, host: str) -> float:
    fleet.forget(host)
    threading.Event().wait(REBOOT_S)
    fleet.boot(host)
    return wait_all(fleet)
