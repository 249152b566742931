"""Every fault once, in a fleet with the real agent: it recovers, and nothing is lost or left behind."""

import json
import subprocess
import time

import numpy as np
import pytest

from benchmarks.chaos import faults, invariants
from benchmarks.chaos.fleet import ChaosFleet

pytestmark = [pytest.mark.chaos, pytest.mark.distributed, pytest.mark.timeout(1800)]

KILLED = ("env1", "logger", "replay", "agent")
OPTIONS = {"run.env_timeout": 6.0}
MOUNTS = "needs the right to mount a small disk: run it as root, in a container or virtual machine"


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "tcp"])
def test_every_fault_once(tmp_path, is_remote):
    with ChaosFleet(tmp_path, is_remote=is_remote, options=OPTIONS) as fleet:
        fleet.control.slow_s = 3.0
        fleet.wait_training()
        for role in KILLED:  # how fast they come back is for `benchmarks.chaos` to hold
            fleet.wait_training(10)
            faults.kill(fleet, role)
        for role in KILLED:
            fleet.wait_training(10)
            faults.stop(fleet, role)
        for fault in ("raise", "nan", "shape", "dtype", "leak", "slow", "hang"):
            fleet.wait_training(10)
            faults.misbehave(fleet, 2, fault)
        for days in (1, -1):
            faults.jump_clock(fleet, days * faults.DAY_S)
        faults.run_twice(fleet)
        if is_remote:
            faults.cut(fleet)
            faults.delay(fleet)
        fleet.wait_training(300)
        fleet.stop()
        roles = fleet.status()["roles"]
        assert roles["env2"]["hangs"] == 1, "the one that hung, and not the one that took its time"
        verdict = invariants.check_data(fleet)
        invariants.check_ended(fleet, verdict)
        check(verdict)


def test_damaged_files_are_passed_over(tmp_path):
    with ChaosFleet(tmp_path, options=OPTIONS) as fleet:
        fleet.wait_training(800)
        fleet.eventually(lambda: len(list((fleet.logdir / "ckpt").glob("step-*"))) > 1, "two checkpoints")
        fleet.stop()
        before = fleet.counts()
        checkpoint, _, segment = faults.spoil_files(fleet, np.random.default_rng(0))
        fleet.start()
        fleet.wait_training(100)
        output = fleet.stop()
        assert f"checkpoint {checkpoint} is skipped" in output
        assert segment in output, "a damaged segment is named"
        assert fleet.counts().inserts > before.inserts, "the count of steps goes on"
        for line in (fleet.logdir / "metrics.jsonl").read_text().splitlines():
            json.loads(line)


def test_a_full_disk_stops_nothing_for_good(tmp_path):
    """The files of the run cannot grow for a while: it waits, says so, and goes on when they can."""
    assert faults.mount_small_disk(tmp_path / "disk", 100), MOUNTS
    try:
        with ChaosFleet(tmp_path / "disk", options=OPTIONS) as fleet:
            fleet.wait_training()
            faults.fill_disk(fleet)
            fleet.wait_training(
                1500
            )  # the ratio is off by up to 14 sequences (limiter, prefetch) and a message of rows
            fleet.stop()
            verdict = invariants.check_data(fleet)
            invariants.check_ended(fleet, verdict)
            check(verdict)
    finally:
        faults.unmount(tmp_path / "disk")


def test_a_read_only_logdir_is_refused(tmp_path):
    assert faults.mount_small_disk(tmp_path / "disk", 1), MOUNTS
    try:
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "disk")], check=True)
        fleet = ChaosFleet(tmp_path / "fleet", options=OPTIONS)
        result = fleet.run_command("train", "--logdir", tmp_path / "disk" / "run")
        assert result.returncode == 2
        assert "logdir=" in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr
        fleet.close()
    finally:
        faults.unmount(tmp_path / "disk")


def test_hung_environments_leave_the_others_their_speed(tmp_path):
    """One of eight hangs for good: the others make at least four fifths of the steps that all made.

    The simulators are what takes the time, not this machine, which may have other work to do.
    """
    options = {**OPTIONS, "run.envs": 8, "run.env_timeout": 0.0, "agent": "dreamfleet.agent.random:RandomAgent"}
    options |= {"run.train_ratio": 0.0, "replay.capacity": 2_000_000, "dreamer.size": "debug"}
    with ChaosFleet(tmp_path, options=options) as fleet:
        fleet.control.pace_s = 0.1
        fleet.wait_training(500)
        before = measure_rate(fleet)
        fleet.control.command(3, "hang")
        fleet.wait_training(100)
        after = measure_rate(fleet)
        print(f"{before:.0f} steps/s with eight, {after:.0f} with one of them hung")
        assert after > 0.8 * before
        fleet.stop()


def measure_rate(fleet: ChaosFleet) -> float:
    counts, start = fleet.counts(), time.monotonic()
    fleet.eventually(lambda: time.monotonic() - start > 10, "ten seconds")
    return (fleet.counts().inserts - counts.inserts) / (time.monotonic() - start)


def check(verdict: invariants.Verdict) -> None:
    print(verdict)
    assert verdict.lost_steps == verdict.doubled_steps == verdict.went_back == verdict.orphans == 0
    assert not verdict.leftovers
    assert abs(verdict.ratio_error) < 0.02
