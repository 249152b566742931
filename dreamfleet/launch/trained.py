"""A trained agent from a log directory: what the commands `eval`, `record` and `export` start from."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dreamfleet.base.hints import choose_from
from dreamfleet.base.seeds import derive_seed
from dreamfleet.checkpoint import Checkpoint, Checkpoints
from dreamfleet.envs import Env, make_env
from dreamfleet.errors import CheckpointError, ConfigError
from dreamfleet.launch.factories import make_run_agent
from dreamfleet.options import Options, load_saved_options

log = logging.getLogger("dreamfleet.launch")

BEST, LATEST = "best", "latest"  # checkpoints that are not named by their step


class SavedRun(NamedTuple):
    """A run as it was saved: its options, with what the user changes about it, and a checkpoint."""

    options: Options
    checkpoint: Checkpoint


def load_run(
    logdir: str | Path, overrides: Sequence[str] = (), checkpoint: str | Path | None = None, flags: Sequence[str] = ()
) -> SavedRun:
    """The run in `logdir` with its newest checkpoint, with that of the best score, or one named by path or by name."""
    options = load_saved_options(logdir, overrides, flags)
    return SavedRun(options, _find_checkpoint(options, checkpoint))


def make_trained_agent(run: SavedRun, agent: Any = None) -> Any:
    """The agent of a run, or one that was made for another checkpoint of it, with the parameters of the checkpoint."""
    agent = agent or make_run_agent(run.options)
    try:
        agent.load(run.checkpoint.read("agent"))
    except CheckpointError as error:
        remedy = "use a task with the observation and action spaces of the run, and its agent and network sizes"
        raise ConfigError("task", run.options.task, f"does not fit {run.checkpoint.name} ({error})", remedy) from None
    return agent


def make_eval_env(options: Options, render: bool = False) -> Callable[..., Env]:
    """A factory of environments by number, with other seeds than those of the training; `render` as in `make_env`."""

    def make(index: int, rebuild: int = 0) -> Env:
        return make_env(options.task, derive_seed(options.seed, "eval", index, 0, rebuild), options.env, render)

    return make


def _find_checkpoint(options: Options, given: str | Path | None) -> Checkpoint:
    directory = Path(options.logdir) / "ckpt"
    if given == BEST:
        if found := Checkpoints(options.logdir).best():
            return found
        reason = "has no checkpoint with a score: one needs at least ten finished episodes since the one before"
        raise ConfigError("checkpoint", BEST, f"is not there: {options.logdir} {reason}", f"use {LATEST}")
    if given is None or given == LATEST:
        found = Checkpoints(options.logdir).latest() if directory.is_dir() else None
        if found is None and any(directory.glob("step-*")):
            remedy = "see the warnings above; resume the run to save a new one"
            raise ConfigError("logdir", options.logdir, "holds a run whose checkpoints are all damaged", remedy)
        if found is None:
            reason = "holds a run that has not saved a checkpoint yet"
            first = f"wait for the first one (run.save_every={options.run.save_every} s)"
            remedy = f"{first}, or stop the run with Ctrl-C, which saves one"
            raise ConfigError("logdir", options.logdir, reason, remedy)
        return found
    path = Path(given).expanduser()
    path = directory / path if not path.exists() and (directory / path).is_dir() else path
    try:
        return Checkpoints.load(path)
    except CheckpointError as error:
        names = [BEST, LATEST, *sorted(entry.name for entry in directory.glob("step-*"))]
        remedy = choose_from(str(given), names)
        raise ConfigError("checkpoint", str(given), f"cannot be read ({error})", remedy) from None
