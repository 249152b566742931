"""The faults: each is injected, and waits until whoever it hit does its work again. Returns how long that took."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.chaos.control import Life
from benchmarks.chaos.fleet import BATCH_SIZE, ENVS, ChaosError, ChaosFleet

RECOVERY_S = 120.0  # what takes longer is not a recovery
STOPPED_S = 3.0
DELAY_S, DELAYED_S = 0.5, 5.0
FULL_S = 3.0
DAY_S = 86_400.0
AHEAD = 6  # batches that the learner never has drawn and not trained on
ROLES = ("logger", "replay", "agent", *(f"env{i}" for i in range(ENVS)))


def kill(fleet: ChaosFleet, role: str) -> float:
    """SIGKILL of a role."""
    return _recover(fleet, role, lambda: os.kill(fleet.pid(role), signal.SIGKILL))


def stop(fleet: ChaosFleet, role: str) -> float:
    """SIGSTOP of a role for a while; the time is counted from its SIGCONT."""
    pid = fleet.pid(role)
    os.kill(pid, signal.SIGSTOP)
    threading.Event().wait(STOPPED_S)
    return _recover(fleet, role, lambda: os.kill(pid, signal.SIGCONT))


def misbehave(fleet: ChaosFleet, index: int, fault: str) -> float:
    """A fault of an environment; it has recovered once another one in its place has been given actions."""
    before = fleet.control.life(index)
    start = time.monotonic()
    fleet.control.command(index, fault)

    def is_renewed() -> bool:
        life = fleet.control.life(index)
        return life.steps >= 2 and (life.number != before.number or (fault == "slow" and _is_slept(start)))

    def _is_slept(start: float) -> bool:
        return time.monotonic() - start > fleet.control.slow_s and fleet.control.life(index).steps > before.steps + 2

    fleet.eventually(is_renewed, f"env{index} works after {fault}", RECOVERY_S)
    return time.monotonic() - start


def cut(fleet: ChaosFleet) -> float:
    """All TCP connections to the replay go dead without a FIN."""
    assert fleet.proxy, "only a fleet with a remote replay has a link to cut"
    fleet.proxy.cut()
    threading.Event().wait(0.1)  # what had passed already is not a sign of recovery
    return _wait_work(fleet, "replay", time.monotonic())


def delay(fleet: ChaosFleet) -> float:
    """Everything to and from the replay comes half a second later; the run has to go on meanwhile."""
    assert fleet.proxy, "only a fleet with a remote replay has a link to delay"
    fleet.proxy.delay_s = DELAY_S
    took = _wait_work(fleet, "replay", time.monotonic())
    threading.Event().wait(DELAYED_S)
    fleet.proxy.delay_s = 0.0
    return took


def jump_clock(fleet: ChaosFleet, seconds: float) -> float:
    """The clocks of all processes jump."""
    fleet.control.clock_offset_s = seconds
    start = time.monotonic()
    for role in ("env0", "replay", "logger", "agent"):
        _wait_work(fleet, role, start)
    return time.monotonic() - start


def run_twice(fleet: ChaosFleet) -> float:
    """A second run in the same log directory, which has to be refused."""
    start = time.monotonic()
    result = fleet.run_command("train", "--logdir", fleet.logdir)
    if not result.returncode or "is in use by process" not in result.stderr:
        raise ChaosError(f"a second run was not refused:\n{result.stdout}{result.stderr}")
    return time.monotonic() - start


def fill_disk(fleet: ChaosFleet) -> float:
    """Not a byte is left on the file system of the log directory, for a while."""
    ballast = fleet.root / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass
    threading.Event().wait(FULL_S)
    ballast.unlink()
    start = time.monotonic()
    for role in ("replay", "agent", "logger"):
        _wait_work(fleet, role, start)
    return time.monotonic() - start


def mount_small_disk(directory: Path, megabytes: int) -> bool:
    """Puts a small file system at the directory; False where the user may not."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(directory)]
    return sys.platform == "linux" and not subprocess.run(command, capture_output=True, check=False).returncode


def unmount(directory: Path) -> None:
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def spoil_files(fleet: ChaosFleet, rng: np.random.Generator) -> list[str]:
    """Damages the newest checkpoint, the metrics and a replay segment of a run that has ended; says what it did."""
    checkpoint = max((fleet.logdir / "ckpt").glob("step-*"), key=lambda path: path.name.rsplit("-", 1)[1])
    part = checkpoint / "agent.bin"
    if rng.integers(2):
        os.truncate(part, part.stat().st_size // 2)
    else:
        _flip(part, rng)
    metrics = fleet.logdir / "metrics.jsonl"
    with metrics.open("ab") as file:
        file.write(b'{"step": 12, "tor')
    segment = sorted((fleet.replay_logdir / "replay" / "train").glob("*.segment"))[-1]
    os.truncate(segment, segment.stat().st_size - 4096)
    return [checkpoint.name, metrics.name, segment.name]


def _flip(path: Path, rng: np.random.Generator) -> None:
    with path.open("r+b") as file:
        position = int(rng.integers(path.stat().st_size))
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0x40]))


def _recover(fleet: ChaosFleet, role: str, inject: Callable[[], None]) -> float:
    inject()
    return _wait_work(fleet, role, time.monotonic())


def _wait_work(fleet: ChaosFleet, role: str, start: float) -> float:
    """Waits until the role does its work from here on; returns the time since `start`."""
    is_at_work = watch_work(fleet, role)
    fleet.eventually(is_at_work, f"{role} works again", RECOVERY_S)
    return time.monotonic() - start


def watch_work(fleet: ChaosFleet, role: str) -> Callable[[], bool]:
    """Whether the role has worked since this was called: what only it can have done."""
    counts = fleet.counts()
    if role == "replay":  # commits steps or hands out batches
        return lambda: fleet.counts() != counts
    if role == "logger":  # writes how far the run is, every second
        progress = _stamp(fleet)
        return lambda: _stamp(fleet) != progress
    lives = {i: fleet.control.life(i) for i in range(ENVS)}
    if role == "agent":  # gives actions, and has trained on batches: it asks for more than it draws ahead
        has_trained = _watch_training(fleet)
        return lambda: has_trained() and any(_has_moved(life, fleet.control.life(i)) for i, life in lives.items())
    index = int(role.removeprefix("env"))
    return lambda: _has_moved(lives[index], fleet.control.life(index))


def _watch_training(fleet: ChaosFleet) -> Callable[[], bool]:
    lowest = fleet.counts().samples

    def has_trained() -> bool:
        nonlocal lowest
        samples = fleet.counts().samples
        lowest = min(lowest, samples)  # a learner that is back counts from its checkpoint on
        return samples >= lowest + AHEAD * BATCH_SIZE

    return has_trained


def _has_moved(before: Life, now: Life) -> bool:
    steps = now.steps - (before.steps if now.number == before.number else 0)
    return steps >= 2  # the second step needs an answer to the first


def _stamp(fleet: ChaosFleet) -> tuple[int, int] | None:
    try:
        stat = (fleet.logger_logdir / "progress.json").stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns
