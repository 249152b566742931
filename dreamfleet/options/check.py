"""Finds settings that cannot work, before any process starts; called by the commands."""

import contextlib
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import elements

from dreamfleet.errors import ConfigError
from dreamfleet.metrics.writers import check_outputs
from dreamfleet.options.addresses import check_addresses
from dreamfleet.options.values import nearest

POSITIVE = (
    "batch_size",
    "batch_length",
    "report_length",
    "consec_train",
    "consec_report",
    "run.envs_per_worker",
    "run.actor_threads",
    "run.backlog",
    "run.prefetch",
    "run.act_timeout",
    "run.episode_timeout",
    "run.heartbeat_timeout",
    "run.log_every",
    "run.report_batches",
    "run.keep",
    "env.dummy.length",
    "env.dummy.size",
    "env.gym.size",
    "env.gym.repeat",
    "env.atari.size",
    "env.atari.repeat",
    "env.atari.length",
    "env.atari100k.size",
    "env.atari100k.repeat",
    "env.atari100k.length",
    "env.dmc.size",
    "env.dmc.repeat",
    "env.crafter.size",
    "env.minigrid.size",
    "env.memorymaze.size",
    "env.procgen.size",
    "logger.fps",
)
NOT_NEGATIVE = (
    "seed",
    "replay_context",
    "replay.capacity",
    "replay.sync_every",
    "replay.uniform",
    "replay.recency",
    "replay.recency_exponent",
    "replay.priority",
    "replay.priority_exponent",
    "replay.priority_initial",
    "replay.priority_max",
    "run.steps",
    "run.duration",
    "run.eval_envs",
    "run.actor_wait_ms",
    "run.env_timeout",
    "run.leg",
    "run.report_every",
    "run.save_every",
    "run.max_restarts",
    "env.gym.length",
    "env.atari.noops",
    "env.atari100k.noops",
    "env.procgen.levels",
)
AGENT_SECTIONS = ("dreamer.", "jax.")  # no number in them can be negative
CHOICES = {
    "run.mode": ("parallel", "serial"),
    "run.transport": ("auto", "zmq", "portal"),
    "replay.storage": ("disk", "ram"),
    "env.atari.actions": ("full", "needed"),
    "env.atari.lives": ("unused", "discount", "reset"),
    "env.atari100k.actions": ("full", "needed"),
    "env.atari100k.lives": ("unused", "discount", "reset"),
    "env.procgen.mode": ("easy", "hard", "extreme", "memory", "exploration"),
}
BLOCK_ROWS = 64  # that the replay gives to an environment at a time
IMAGE_SIDES = range(48, 257, 16)  # what the image networks can take


def check_config(config: elements.Config, listens: Iterable[str] | None = None) -> None:
    """Raises ConfigError for the first setting that cannot work.

    `listens` names the roles whose addresses are bound on this machine; by default those that the run starts here.
    """
    _check_choices(config)
    _check_numbers(config)
    _check_lengths(config)
    _check_names(config)
    _check_roles(config)
    _check_checkpoint(config)
    _check_images(config)
    check_outputs(config.flat["logger.outputs"])
    check_addresses(config, _listening(config) if listens is None else listens)
    _check_logdir(config.flat["logdir"])


def _check_choices(config: Any) -> None:
    for key, choices in CHOICES.items():
        values = config[key] if isinstance(config[key], tuple) else (config[key],)
        for value in values:
            if value not in choices:
                near = nearest(value, choices)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise ConfigError(key, value, "is unknown", f"choose from {', '.join(choices)}{hint}")


def _check_numbers(config: Any) -> None:
    for key in POSITIVE:
        if config[key] <= 0:
            least = "at least 1" if isinstance(config[key], int) else "a number above 0"
            raise ConfigError(key, config[key], "is not positive", f"give {least}")
    agent = [
        key for key, value in config.flat.items() if key.startswith(AGENT_SECTIONS) and type(value) in (int, float)
    ]
    for key in (*NOT_NEGATIVE, *agent):
        if config[key] < 0:
            raise ConfigError(key, config[key], "is negative", "give 0 or more")


def _check_lengths(config: Any) -> None:
    train = config.consec_train * config.batch_length
    report = config.consec_report * config.report_length
    if report > train:
        reason = (
            f"needs consec_report*report_length={report} steps, but sequences have consec_train*batch_length={train}"
        )
        most = train // config.consec_report
        remedy = f"lower report_length to at most {most} or raise batch_length" if most else "lower consec_report"
        raise ConfigError("report_length", config.report_length, reason, remedy)
    _check_replay(config.replay, config.batch_size, train + config.replay_context, config.run.envs)


def _check_replay(replay: Any, batch_size: int, length: int, envs: int) -> None:
    needed = batch_size * length
    if 0 < replay.capacity < needed:
        reason = f"is below batch_size*length={batch_size}*{length}={needed}"
        raise ConfigError("replay.capacity", replay.capacity, reason, "raise one or lower the other")
    needed = envs * (length + BLOCK_ROWS)
    if 0 < replay.capacity < needed:
        reason = f"leaves no room for a sequence of each of {envs} environments ({needed} steps)"
        raise ConfigError("replay.capacity", replay.capacity, reason, "raise it, or lower run.envs")
    if not replay.uniform + replay.recency + replay.priority:
        reason = "leaves no way to choose sequences, as replay.recency and replay.priority are 0 too"
        raise ConfigError("replay.uniform", replay.uniform, reason, "set one of them to 1")
    if replay.priority_max > 1:
        raise ConfigError("replay.priority_max", replay.priority_max, "is not a part", "give 0 to 1")


def _check_names(config: Any) -> None:
    name = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
    if not re.fullmatch(f"{name}:{name}", config.agent):
        remedy = "write its module and its name, such as dreamfleet.agent.random:RandomAgent"
        raise ConfigError("agent", config.agent, "is not of the form module:attr", remedy)
    if not config.task:
        raise ConfigError("task", config.task, "is empty", "name an environment, such as gym_CartPole-v1")
    gym_id = r"gym_[\w.]+:[\w./-]+"  # with the module that registers it
    if ":" in config.task and not re.fullmatch(f"{name}:{name}|{gym_id}", config.task):
        remedy = "write a module and a name in it, or a task such as gym_CartPole-v1"
        raise ConfigError("task", config.task, "is not of the form module:attr", remedy)


def _check_roles(config: Any) -> None:
    run = config.run
    if run.envs < 0:
        raise ConfigError("run.envs", run.envs, "is negative", "give at least 1")
    if run.envs == 0 and not run.remote_envs:
        _check_offline(config)
    for key in ("remote_envs", "remote_replay", "remote_logger"):
        if run.mode == "serial" and run[key]:
            reason = "cannot work with run.mode='serial', where every role is in one process"
            raise ConfigError(f"run.{key}", True, reason, "set it to False, or run.mode to parallel")
    if run.leg and (run.mode != "serial" or config.replay.storage != "disk"):
        reason = "is of use only where a run can be taken up again exactly"
        raise ConfigError("run.leg", run.leg, reason, "set run.mode to serial and replay.storage to disk, or it to 0")
    for role in ("replay", "logger"):
        addr = run[f"{role}_addr"]
        if run[f"remote_{role}"] and "{auto}" in addr:
            reason = f"is not known to the {role} elsewhere (run.remote_{role}=True)"
            raise ConfigError(f"run.{role}_addr", addr, reason, f"name the host:port where that {role} listens")


def _check_offline(config: Any) -> None:
    """Without environments there must be steps already, and nothing may wait for more."""
    run = config.run
    directory = Path(config.replay.directory or Path(config.logdir) / "replay").expanduser() / "train"
    if not run.remote_replay and not any(directory.glob("*.segment")):
        remedy = "give at least 1, or set run.remote_envs to True, or import episodes first (dreamfleet replay import)"
        raise ConfigError("run.envs", run.envs, "leaves nothing to train on", remedy)
    if run.train_ratio > 0:
        reason = "cannot be kept without environments (run.envs=0)"
        raise ConfigError("run.train_ratio", run.train_ratio, reason, "set it to 0")
    if run.steps:
        reason = "are never reached without environments (run.envs=0)"
        raise ConfigError("run.steps", run.steps, reason, "set it to 0, and run.duration instead")


def _check_checkpoint(config: Any) -> None:
    path, pattern = config.run.from_checkpoint, config.run.from_checkpoint_regex
    if path and not Path(path).exists():
        remedy = "name an existing checkpoint or log directory, or leave it empty"
        raise ConfigError("run.from_checkpoint", path, "does not exist", remedy)
    try:
        re.compile(pattern)
    except re.error as error:
        reason = f"is not a regular expression ({error})"
        raise ConfigError("run.from_checkpoint_regex", pattern, reason, "correct it, or use .* for all") from None


def _check_images(config: Any) -> None:
    for suite, options in config.env.items():
        side = options.get("size", IMAGE_SIDES[0])
        if suite != "dummy" and side not in IMAGE_SIDES:
            reason = "is a size that the image networks cannot take"
            raise ConfigError(f"env.{suite}.size", side, reason, "give 48 to 256, in steps of 16, such as 64")


def _listening(config: Any) -> tuple[str, ...]:
    if config.run.mode == "serial":
        return ()
    return ("actor", *(role for role in ("replay", "logger") if not config.run[f"remote_{role}"]))


def _check_logdir(logdir: str) -> None:
    """Writes there for a moment, and leaves nothing behind."""
    path, missing = Path(logdir), []
    try:
        missing = [parent for parent in (path, *path.parents) if not parent.exists()]
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"probe")
    except OSError as error:
        reason = f"cannot be written to ({error.strerror}: {error.filename or logdir})"
        raise ConfigError("logdir", logdir, reason, "choose a directory that you may write to") from None
    finally:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
