"""What has to hold of a fleet after all that was done to it."""

import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.chaos.fleet import BATCH_LENGTH, BATCH_SIZE, TRAIN_RATIO, ChaosFleet
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.replay.archive import Archive


@dataclass
class Verdict:
    """Counts of what must not be, all 0 in a fleet that keeps its promises, and the ratio that was kept."""

    steps: int = 0
    lost_steps: int = 0
    doubled_steps: int = 0
    went_back: int = 0
    orphans: int = 0
    leftovers: list[str] = field(default_factory=list)
    ratio_error: float = 0.0
    unsaved_stops: int = 0  # orderly ends of a run that left no checkpoint


def check_data(fleet: ChaosFleet) -> Verdict:
    """Compares what was acknowledged with what the replay of a run that has ended holds."""
    counts, archive = fleet.counts(), Archive(fleet.replay_logdir)
    # The count is written before a batch is acknowledged: every step in it must be there.
    verdict = Verdict(steps=counts.inserts, lost_steps=max(0, counts.inserts - archive.steps))
    seen = []
    for segments, rows in archive.trajectories():
        vector = archive.column("vector", segments, rows).astype(np.int64)
        is_first = archive.column("is_first", segments, rows).astype(bool)
        follows = (np.diff(vector[:, 0]) == 0) & (np.diff(vector[:, 1]) == 1)
        # Inside an episode no step may be missing; one that was abandoned ends before a first step.
        verdict.lost_steps += int((~follows & ~is_first[1:]).sum())
        seen.append(vector[:, :2])
    steps = np.concatenate(seen)
    verdict.doubled_steps = len(steps) - len(np.unique(steps, axis=0))
    verdict.went_back = fleet.went_back
    verdict.ratio_error = ratio_error(fleet)
    return verdict


def ratio_error(fleet: ChaosFleet) -> float:
    """How far the updates in the last checkpoint are from what the steps until then ask for, as a fraction."""
    checkpoint = Checkpoints(fleet.logdir).latest()
    assert checkpoint, "the run has ended, so it has saved"
    manifest = checkpoint.manifest
    min_size = BATCH_SIZE * (BATCH_LENGTH + 1)
    replayed = manifest["updates"] * BATCH_SIZE * BATCH_LENGTH
    return replayed / (manifest["counts"]["inserts"] - min_size) / TRAIN_RATIO - 1


def check_ended(fleet: ChaosFleet, verdict: Verdict) -> None:
    """Adds what a fleet that has ended left behind: processes, sockets, ports, shared memory, unfinished files."""
    verdict.orphans += len(fleet.processes())
    verdict.leftovers += [str(path) for path in fleet.temporary.iterdir()]
    verdict.leftovers += [f"port {port}" for port in fleet.ports if is_open(port)]
    verdict.leftovers += [str(path) for path in Path("/dev/shm").glob("*dreamfleet*")]
    for directory in {fleet.logdir, fleet.replay_logdir, fleet.logger_logdir}:
        hidden = re.compile(r"\.(draft|trash|status|progress|config)")
        verdict.leftovers += [str(path) for path in directory.rglob(".*") if hidden.match(path.name)]


def is_open(port: int) -> bool:
    """Whether somebody still listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
