"""What an agent begins with: the checkpoint of its run, parameters of another run, or what it was made with."""

import logging

from dreamfleet.agent.contract import Agent
from dreamfleet.checkpoint import Checkpoint, Checkpoints, check_tree
from dreamfleet.errors import CheckpointError, ConfigError, DreamfleetError
from dreamfleet.options import RoleOptions

log = logging.getLogger("dreamfleet.learner")


def restore_agent(agent: Agent, checkpoints: Checkpoints, options: RoleOptions) -> Checkpoint | None:
    """Loads the run's newest checkpoint, and returns it; without one, `from_checkpoint` if that is named."""
    if checkpoint := checkpoints.latest("agent"):
        _resume(agent, checkpoint, options.logdir)
        return checkpoint
    if options.from_checkpoint:
        _initialise(agent, checkpoints, options)
    _check_state(agent)
    return None


def _resume(agent: Agent, checkpoint: Checkpoint, logdir: str) -> None:
    try:
        agent.load(checkpoint.read("agent"))
    except CheckpointError as error:
        reason = f"holds {checkpoint.name}, which does not fit the agent ({error})"
        remedy = "use the agent that it was saved by, or another logdir"
        raise ConfigError("logdir", logdir, reason, remedy) from error


def _initialise(agent: Agent, checkpoints: Checkpoints, options: RoleOptions) -> None:
    """Takes parameters from a checkpoint of another run; refuses one that the agent cannot take any from."""
    path, regex = options.from_checkpoint, options.from_checkpoint_regex
    try:
        checkpoint = checkpoints.load(path)
        agent.load(checkpoint.read("agent"), regex=regex)
    except Exception as error:  # whatever an agent raises at what it cannot load
        is_ours = isinstance(error, DreamfleetError)
        if not is_ours:
            log.warning("%s.load() raised", type(agent).__name__, exc_info=True)
        reason = f"cannot be loaded by {type(agent).__name__} with run.from_checkpoint_regex={regex!r}"
        what = str(error) if is_ours else f"{type(error).__name__}: {error}"
        remedy = "name a checkpoint of the same agent, and choose parameters that both have"
        raise ConfigError("run.from_checkpoint", path, f"{reason} ({what})", remedy) from error
    log.info("initialized from %s, parameters %s", checkpoint.path, regex)


def _check_state(agent: Agent) -> None:
    """Refuses, before anything is learned, an agent whose state cannot be written."""
    try:
        state = agent.save()
    except Exception as error:  # perhaps it can only later
        log.warning("agent.save() raised %s: %s; it is tried again", type(error).__name__, error, exc_info=True)
        return
    try:
        check_tree(state)
    except CheckpointError as error:
        remedy = "let save() return a tree of arrays, numbers, str, bytes and None"
        raise ConfigError("agent", type(agent).__name__, f"cannot be saved ({error})", remedy) from None
