"""A fleet that trains while faults hit it at random moments: what is lost, what is left, and how fast it recovers.

    python -m benchmarks.chaos --minutes 20 --seed 0 --json chaos.json
    python -m benchmarks.chaos --hosts --minutes 20 --seed 0 --json hosts.json

Half of the time all roles are on one machine, half of it the replay joins over TCP through a proxy that cuts and
delays. Each half ends with a stop, damaged files, and a run that goes on from what is left. With `--hosts` the fleet is
on five hosts (trainer, replay, logger, two with environments), which are network namespaces: hosts are killed, stopped,
cut off and unplugged too, and the run is stopped and resumed. The exit code is 1 if anything was lost or left behind, a
stop left no checkpoint, or the median recovery of a role took longer than its limit.
"""

import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.chaos import faults, invariants
from benchmarks.chaos.fleet import ENVS, ChaosError, ChaosFleet
from benchmarks.chaos.host_fleet import HOSTS, HostFleet, make_host_faults
from benchmarks.chaos.hosts import Hosts, check_permission
from benchmarks.chaos.invariants import Verdict
from benchmarks.report import Case, finish, parse_args

DISK_MB = 400
SLOW_S = 30.0
LAZY_ENV = ENVS - 1  # the one that hangs and dawdles, which takes longer than the pause between two faults
KILL_WEIGHT = 3  # kills are what the times are asked of
BAD_OBSERVATIONS = ("raise", "nan", "shape", "dtype", "leak")
# Recovery times on a machine without other work: twice the medians that docs/reliability.md states.
LIMITS_S = {"env": 1.6, "logger": 3.4, "replay": 2.2, "agent": 17.2}

PACE_S = 0.02  # of a step on hosts: an agent that only draws actions would fill the replay, which is to hold them all
AGENTS = {"dreamer": {}, "random": {"agent": "dreamfleet.agent.random:RandomAgent"}}

Times = dict[str, list[float]]
FaultTable = dict[str, Callable[[], float]]


class Injector:
    """Draws faults from a seed and injects one after the other, on average one every `every_s`."""

    def __init__(self, fleet: ChaosFleet, rng: np.random.Generator, every_s: float, times: Times, faults: FaultTable):
        self._fleet, self._rng, self._every_s, self._times = fleet, rng, every_s, times
        self._lazy: threading.Thread | None = None
        self._errors: list[BaseException] = []
        self._faults = faults
        fleet.control.slow_s = SLOW_S

    def run(self, seconds: float) -> None:
        """Injects faults for this long; raises the first one that the fleet did not recover from."""
        end = due = time.monotonic() + seconds
        due -= seconds
        # Every kind once, then at random: a short run is no lucky one.
        order = list(self._rng.permutation(list(self._faults)))
        names = [name for name in self._faults for _ in range(KILL_WEIGHT if name.startswith("kill") else 1)]
        while time.monotonic() < end and not self._errors:
            due += self._rng.exponential(self._every_s)
            threading.Event().wait(max(0.0, min(due, end) - time.monotonic()))
            self._fleet.wait_training(10)
            name = order.pop() if order else str(self._rng.choice(names))
            self._inject(name)
        if self._lazy:
            self._lazy.join()
        if self._errors:
            raise self._errors[0]

    def _inject(self, name: str) -> None:
        if name in ("hang", "slow"):
            if self._lazy is None or not self._lazy.is_alive():
                self._lazy = threading.Thread(target=self._measure, args=(name,))
                self._lazy.start()
            return
        self._measure(name)

    def _measure(self, name: str) -> None:
        try:
            seconds = self._faults[name]()
        except BaseException as error:
            self._errors.append(error)
            return
        self._times[name].append(seconds)
        print(f"{time.strftime('%H:%M:%S')} {name}: {seconds:.2f} s", flush=True)


def make_faults(fleet: ChaosFleet, rng: np.random.Generator, has_disk: bool) -> FaultTable:
    """Every fault of a fleet on one machine, perhaps with a replay behind a proxy, by name."""

    def env() -> int:
        return int(rng.integers(LAZY_ENV))

    table: FaultTable = {
        "kill env": lambda: faults.kill(fleet, f"env{env()}"),
        "stop env": lambda: faults.stop(fleet, f"env{env()}"),
        "hang": lambda: faults.misbehave(fleet, LAZY_ENV, "hang"),
        "slow": lambda: faults.misbehave(fleet, LAZY_ENV, "slow"),
        "clock": lambda: faults.jump_clock(fleet, float(rng.choice([-1, 0, 1])) * faults.DAY_S),
        "second run": lambda: faults.run_twice(fleet),
    }
    for role in ("logger", "replay", "agent"):
        table[f"kill {role}"] = lambda role=role: faults.kill(fleet, role)
        table[f"stop {role}"] = lambda role=role: faults.stop(fleet, role)
    for fault in BAD_OBSERVATIONS:
        table[fault] = lambda fault=fault: faults.misbehave(fleet, env(), fault)
    if fleet.proxy:
        table |= {"cut": lambda: faults.cut(fleet), "delay": lambda: faults.delay(fleet)}
    if has_disk:
        table["full disk"] = lambda: faults.fill_disk(fleet)
    return table


def run_half(root: Path, is_remote: bool, seconds: float, rng: np.random.Generator, every_s: float, times: Times):
    """One fleet from its start to its end, and once more with damaged files; returns what was wrong in the end."""
    has_disk = faults.mount_small_disk(root, DISK_MB)
    if not has_disk:
        print("a full disk is not tried: this user cannot mount a small one", flush=True)
    try:
        with ChaosFleet(root, is_remote=is_remote) as fleet:
            fleet.wait_training()
            Injector(fleet, rng, every_s, times, make_faults(fleet, rng, has_disk)).run(seconds)
            fleet.wait_training(200)
            fleet.stop()
            verdict = invariants.check_data(fleet)
            invariants.check_ended(fleet, verdict)
            print(verdict, flush=True)
            spoilt = faults.spoil_files(fleet, rng)
            start = time.monotonic()
            fleet.start()
            fleet.wait_training()
            times["damaged files"].append(time.monotonic() - start)
            print(f"went on without {', '.join(spoilt)}", flush=True)
            fleet.stop()
            invariants.check_ended(fleet, verdict)
            return verdict
    finally:
        if has_disk:
            faults.unmount(root)


def run_hosts(
    root: Path, seconds: float, rng: np.random.Generator, every_s: float, times: Times, options: dict[str, str]
) -> Verdict:
    """A fleet over hosts from its start to its end; returns what was wrong in the end."""
    root.mkdir(parents=True)
    with Hosts(HOSTS) as hosts, HostFleet(root, hosts, options) as fleet:
        fleet.control.pace_s = PACE_S
        fleet.wait_training()
        Injector(fleet, rng, every_s, times, make_host_faults(fleet, rng)).run(seconds)
        fleet.wait_training(200)
        fleet.stop()
        verdict = invariants.check_data(fleet)
        invariants.check_ended(fleet, verdict)
        verdict.unsaved_stops = len(fleet.unsaved_stops)
        print(f"{verdict}, {fleet.stops} stops", *fleet.unsaved_stops, sep="\n", flush=True)
        return verdict


def make_cases(verdicts: list[Verdict], times: Times) -> list[Case]:
    """The table: what was lost and left, then the time of each kind of fault."""
    cases = [
        Case("steps", "steps", "higher", sum(v.steps for v in verdicts)),
        Case("faults", "faults", "higher", sum(map(len, times.values()))),
        Case("lost steps", "steps", "lower", sum(v.lost_steps + v.went_back for v in verdicts)),
        Case("doubled steps", "steps", "lower", sum(v.doubled_steps for v in verdicts)),
        Case("orphans", "processes", "lower", sum(v.orphans for v in verdicts)),
        Case("leftovers", "files", "lower", sum(len(v.leftovers) for v in verdicts)),
        Case("stops without a checkpoint", "stops", "lower", sum(v.unsaved_stops for v in verdicts)),
        Case("ratio error", "%", "lower", 100 * max(abs(v.ratio_error) for v in verdicts)),
    ]
    for role in LIMITS_S:
        if kills := times.pop(f"kill {role}", []):
            cases.append(Case(f"{role} recovery s", "s", "lower", median(kills)))
            cases.append(Case(f"{role} recovery s, max of {len(kills)}", "s", "lower", max(kills)))
    for name, seconds in sorted(times.items()):
        cases.append(Case(f"after {name}, s", "s", "lower", median(seconds)))
        cases.append(Case(f"after {name}, s, max of {len(seconds)}", "s", "lower", max(seconds)))
    return cases


def main() -> int:
    parser = parse_args(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=4.0, help="how long faults are injected, both halves together")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of faults and moments")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between faults, on average")
    parser.add_argument("--hosts", action="store_true", help="spread the fleet over network namespaces (needs root)")
    parser.add_argument("--agent", choices=tuple(AGENTS), default="dreamer", help="random: nothing is compiled (hosts)")
    args = parser.parse_args()
    if args.hosts:
        try:
            check_permission()
        except ChaosError as error:
            print(error, file=sys.stderr)
            return 2
    rng, times, verdicts = np.random.default_rng(args.seed), defaultdict(list), []
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        if args.hosts:
            verdicts.append(run_hosts(root / "hosts", 60 * args.minutes, rng, args.every, times, AGENTS[args.agent]))
        else:
            for name, is_remote in (("local", False), ("tcp", True)):
                verdicts.append(run_half(root / name, is_remote, 30 * args.minutes, rng, args.every, times))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    cases = make_cases(verdicts, times)
    finish("chaos", cases, args.json)
    return int(is_broken(cases))


def is_broken(cases: list[Case]) -> bool:
    """Whether anything was lost or left, or a role took longer than it may to come back."""
    figures = {case.case: case.ours for case in cases}
    must_be_zero = ("lost steps", "doubled steps", "orphans", "leftovers", "stops without a checkpoint")
    slow = [role for role, limit_s in LIMITS_S.items() if figures.get(f"{role} recovery s", 0.0) > limit_s]
    for role in slow:
        print(f"{role}: recovery took {figures[f'{role} recovery s']:.2f} s, more than {LIMITS_S[role]:g} s")
    return bool(slow) or any(figures[name] for name in must_be_zero)


if __name__ == "__main__":
    sys.exit(main())
