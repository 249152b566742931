"""What earlier lives of a run left in its log directory, and what that means for the next one."""

import contextlib
from pathlib import Path

from dreamfleet.base.logdir import COUNTS
from dreamfleet.checkpoint import Checkpoint, Checkpoints
from dreamfleet.errors import CheckpointError
from dreamfleet.metrics.progress import read_progress
from dreamfleet.migration.logdirs import refuse_reference
from dreamfleet.options import Options, check_resume, refuse_foreign
from dreamfleet.roles.replay.counts import CountsFile


def find_checkpoint(logdir: str | Path) -> Checkpoint | None:
    """The newest checkpoint of the agent, without a look at its checksums."""
    with contextlib.suppress(CheckpointError):
        return Checkpoints(logdir).latest("agent", is_deep=False)
    return None


def check_start(options: Options) -> bool:
    """Whether a run is resumed; raises ConfigError if the log directory holds one of other options.

    A run that never got as far as a step, such as one that failed to start, does not bind the next one.
    """
    if has_steps(options.logdir):
        return check_resume(options)
    refuse_reference(options.logdir)  # not in a run of ours, whose replay may be theirs
    refuse_foreign(options.logdir)
    return False


def has_steps(logdir: str | Path) -> bool:
    """Whether a run in the directory has committed steps, as far as this machine knows."""
    progress = read_progress(logdir)
    return bool(progress and progress.step) or _committed(logdir) > 0 or find_checkpoint(logdir) is not None


def is_complete(options: Options) -> bool:
    """Whether there is a checkpoint of the end of the run."""
    checkpoint = find_checkpoint(options.logdir)
    if checkpoint is None:
        return False
    run, manifest = options.run, checkpoint.manifest
    reached = (
        (checkpoint.step, run.steps),
        (manifest["updates"], run.updates),
        (manifest["elapsed_s"], run.duration),
    )
    return any(0 < limit <= done for done, limit in reached)


def describe_loss(logdir: str | Path) -> str:
    """What a kill costs that does not wait for a checkpoint."""
    checkpoint, progress = find_checkpoint(logdir), read_progress(logdir)
    saved = checkpoint.manifest["updates"] if checkpoint else 0
    updates = f"{max(0, progress.updates - saved):,} updates" if progress else "updates"
    return f"the {updates} since {f'checkpoint {checkpoint.name}' if checkpoint else 'the start'} are lost"


def _committed(logdir: str | Path) -> int:
    path = Path(logdir) / COUNTS
    if not path.exists():
        return 0
    file = CountsFile(path)
    try:
        return file.read().inserts
    finally:
        file.close()
