"""Finds options that cannot work together or on this machine, before any process starts; called by the commands.

What concerns one option alone (type, range, choices) is in its declaration and refused when it is read.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dreamfleet.base.addresses import Address, is_ipc
from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.base.extras import check_installed, install_command
from dreamfleet.base.logdir import KEY_VARIABLE
from dreamfleet.errors import ConfigError
from dreamfleet.options.addresses import check_addresses
from dreamfleet.options.ray import RayOptions
from dreamfleet.options.replay import ReplayOptions
from dreamfleet.options.root import Options
from dreamfleet.options.run import RunOptions

NAME = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
GYM_ID = r"gym_[\w.]+:[\w./-]+"  # with the module that registers it


def check_options(options: Options) -> None:
    """Raises ConfigError for the first option of a run that cannot work."""
    _check_lengths(options)
    _check_names(options)
    _check_roles(options)
    if options.run.replicas > 1 or options.run.gang or options.run.replica:
        _check_gang(options)
    if options.run.launcher == "ray":
        check_ray(options.run, options.ray)
    _check_mix(options)
    _check_checkpoint(options)
    check_addresses(options.run, _listening(options))
    _check_logdir(options.logdir)


def check_role(options: Options, kind: str, listens: Iterable[str]) -> None:
    """The same for a role that joins a run from here; what concerns the whole run was checked where that started.

    `listens` names the servers among actor, replay and logger whose addresses are bound on this machine.
    """
    _check_lengths(options)
    _check_names(options)
    _check_handshake(options.run)
    if kind == "envs" and not options.run.envs + options.run.eval_envs:
        raise ConfigError("run.envs", 0, "leaves no environment to join with", "give at least 1, or set run.eval_envs")
    if kind == "replay":
        _check_mix(options)
    remedy = f"has a {kind} joined from here already? Otherwise free it: the run looks for its {kind} at this address"
    check_addresses(options.run, listens, remedy)
    _check_logdir(options.logdir)


def _check_lengths(options: Options) -> None:
    train = options.consec_train * options.batch_length
    report = options.consec_report * options.report_length
    if report > train:
        reason = (
            f"needs consec_report*report_length={report} steps, but sequences have consec_train*batch_length={train}"
        )
        most = train // options.consec_report
        remedy = f"lower report_length to at most {most} or raise batch_length" if most else "lower consec_report"
        raise ConfigError("report_length", options.report_length, reason, remedy)
    _check_replay(options.replay, options.batch_size, train + options.replay_context, options.run.envs)


def _check_replay(replay: ReplayOptions, batch_size: int, length: int, envs: int) -> None:
    needed = batch_size * length
    if 0 < replay.capacity < needed:
        reason = f"is below batch_size*length={batch_size}*{length}={needed}"
        raise ConfigError("replay.capacity", replay.capacity, reason, "raise one or lower the other")
    needed = envs * _rows_per_env(length)
    if 0 < replay.capacity < needed:
        reason = f"leaves no room for a sequence of each of {envs} environments ({needed} steps)"
        raise ConfigError("replay.capacity", replay.capacity, reason, "raise it, or lower run.envs")
    if not replay.uniform + replay.recency + replay.priority:
        reason = "leaves no way to sample sequences, as replay.recency and replay.priority are 0 too"
        raise ConfigError("replay.uniform", replay.uniform, reason, "set one of them to 1")


def count_most_envs(options: Options) -> int:
    """Environments whose sequences the replay has room for; 0 where its capacity is chosen later."""
    length = options.consec_train * options.batch_length + options.replay_context
    return options.replay.capacity // _rows_per_env(length)


def _rows_per_env(length: int) -> int:
    return length + BLOCK_ROWS  # a sequence may begin anywhere in a block


def _check_names(options: Options) -> None:
    if not re.fullmatch(f"{NAME}:{NAME}", options.agent):
        remedy = "write its module and its name, such as dreamfleet.agent.random:RandomAgent"
        raise ConfigError("agent", options.agent, "is not of the form module:attr", remedy)
    if ":" in options.task and not re.fullmatch(f"{NAME}:{NAME}|{GYM_ID}", options.task):
        remedy = "write a module and a name in it, or a task such as gym_CartPole-v1"
        raise ConfigError("task", options.task, "is not of the form module:attr", remedy)


def _check_roles(options: Options) -> None:
    run = options.run
    if run.is_offline:
        _check_offline(options)
    remote = {"envs": run.remote_envs, "replay": run.remote_replay, "logger": run.remote_logger}
    for role in (role for role, is_remote in remote.items() if is_remote and run.mode == "serial"):
        reason = "cannot work with run.mode='serial', where every role is in one process"
        raise ConfigError(f"run.remote_{role}", True, reason, "set it to False, or run.mode to parallel")
    _check_handshake(run)
    if run.leg and (run.mode != "serial" or options.replay.storage != "disk"):
        reason = "requires run.mode=serial and replay.storage=disk"
        raise ConfigError("run.leg", run.leg, reason, "set these, or set it to 0")
    if run.remote_envs and is_ipc(run.actor_addr):
        reason = "is a unix socket, which environments elsewhere cannot reach (run.remote_envs=True)"
        raise ConfigError("run.actor_addr", run.actor_addr, reason, "name the host:port to listen on, as 0.0.0.0:5000")
    for role, addr in (("replay", run.replay_addr), ("logger", run.logger_addr)):
        if remote[role] and "{auto}" in addr:
            reason = f"must be a fixed host:port with run.remote_{role}=True"
            raise ConfigError(f"run.{role}_addr", addr, reason, f"name the host:port where that {role} listens")


def _check_handshake(run: RunOptions) -> None:
    if run.portal_plain_handshake and run.transport != "portal":
        reason = f"concerns the portal library, but run.transport is {run.transport}"
        raise ConfigError("run.portal_plain_handshake", True, reason, "set it to False, or run.transport to portal")


def _check_gang(options: Options) -> None:
    """Refuses what several learners cannot do together."""
    run = options.run
    several = f"run.replicas={run.replicas}"
    if run.replica >= run.replicas:
        reason = f"is not one of the numbers 0 to {run.replicas - 1} of {several}"
        raise ConfigError("run.replica", run.replica, reason, "lower it, or raise run.replicas")
    if run.replicas == 1:
        reason = "is where several learners meet, but run.replicas is 1"
        raise ConfigError("run.gang", run.gang, reason, "leave it empty, or raise run.replicas")
    addr = Address.parse(run.gang, "run.gang") if run.gang else None
    is_placed = run.launcher == "ray"  # which finds an address, and starts the others
    if is_placed and run.replica:
        reason = "is started by that of replica 0 with run.launcher=ray"
        raise ConfigError("run.replica", run.replica, reason, "leave it out, or set run.launcher to local")
    if addr.is_ipc or addr.is_auto if addr else not is_placed:
        reason = f"is not the host:port where the learners of {several} meet"
        raise ConfigError("run.gang", run.gang, reason, "name that of replica 0, as in --run.gang host0:6400, for all")
    lone = (
        ("run.mode", run.mode, run.mode == "serial", "has one learner", "set it to parallel"),
        ("run.agent_process", False, not run.agent_process, "leaves nothing to restart", "set it to True"),
        ("run.remote_envs", True, is_placed and run.remote_envs, "leaves other replicas without", "set it to False"),
        ("run.restart", False, not run.restart, "ends the run where all have to restart", "set it to True"),
        ("jax.sharding", "sharded", options.jax.sharding == "sharded", "spreads what all need", "set it to replicated"),
        ("replay.mix", options.replay.mix, bool(options.replay.mix), "makes batches differ in kind", "leave it empty"),
    )
    for key, value, is_set, reason, remedy in lone:
        if is_set:
            raise ConfigError(key, value, f"{reason}, but {several}", f"{remedy}, or set run.replicas to 1")


def check_ray(run: RunOptions, ray: RayOptions) -> None:
    """Raises ConfigError for what cannot work with `run.launcher ray`: roles are processes, perhaps elsewhere."""
    if run.mode == "serial":
        reason = "cannot work with run.mode='serial', where every role is in one process"
        raise ConfigError("run.launcher", run.launcher, reason, "set it to local, or run.mode to parallel")
    if not run.agent_process:
        reason = "runs the agent in a thread of this process, but run.launcher='ray' places it in the cluster"
        raise ConfigError("run.agent_process", False, reason, "set it to True, or run.launcher to local")
    if run.key_file:
        reason = "is a file on this machine, but run.launcher='ray' hands the key to other machines"
        raise ConfigError("run.key_file", run.key_file, reason, f"leave it empty, and set {KEY_VARIABLE} to the file")
    if ray.address.startswith("ray://"):
        remedy = "run this command on a node of the cluster, or with `ray job submit`"
        raise ConfigError("ray.address", ray.address, "is that of a Ray client, outside of the cluster", remedy)
    for key, labels in (("ray.agent_labels", ray.agent_labels), ("ray.worker_labels", ray.worker_labels)):
        if not re.fullmatch(r"([^=,]+=[^=,]+(,[^=,]+=[^=,]+)*)?", labels):
            raise ConfigError(key, labels, "is not of the form KEY=VALUE,KEY=VALUE", "write it like zone=a,disk=ssd")
    if ray.working_dir and not Path(ray.working_dir).expanduser().is_dir():
        raise ConfigError("ray.working_dir", ray.working_dir, "is not a directory", "name one, or leave it empty")
    remedy = f"run {install_command('ray')}, or set it to local"
    check_installed("run.launcher", run.launcher, ("ray",), remedy)


def _check_offline(options: Options) -> None:
    """Without environments there must be steps already, and the run cannot end with more of them."""
    run = options.run
    if options.replay.storage == "ram" and not run.remote_replay:
        reason = "holds no steps at the start, and there are no environments (run.envs=0)"
        raise ConfigError("replay.storage", "ram", reason, "set it to disk, where imported episodes are")
    if not run.remote_replay and not any((options.replay_directory / "train").glob("*.segment")):
        remedy = "give at least 1, or set run.remote_envs to True, or import episodes first (dreamfleet replay import)"
        raise ConfigError("run.envs", run.envs, "leaves nothing to train on", remedy)
    for key in ("steps", "leg", "save_every_steps"):
        if value := getattr(run, key):
            remedy = "set it to 0" + (", and run.updates or run.duration instead" if key == "steps" else "")
            raise ConfigError(f"run.{key}", value, "counts steps of environments, but run.envs=0", remedy)


def _check_mix(options: Options) -> None:
    """Batches are mixed of what another store has and of fresh steps, of which there must be some."""
    replay, batch_size = options.replay, options.batch_size
    if not replay.mix:
        return
    if replay.mix_share * batch_size > batch_size - 1:
        reason = f"leaves less than one sequence of a batch of {batch_size} for fresh steps"
        remedy = "lower it or raise batch_size; to train on recorded steps alone, import them and set run.envs to 0"
        raise ConfigError("replay.mix_share", replay.mix_share, reason, remedy)
    stores = (options.replay_directory, options.replay_directory / "train", Path(options.logdir))
    if not Path(replay.mix).is_dir():
        raise ConfigError("replay.mix", replay.mix, "is not a directory", "name a log directory or a replay directory")
    if any(Path(replay.mix).resolve() == store.resolve() for store in stores):
        raise ConfigError("replay.mix", replay.mix, "is the run's own", "name that of another run, or leave it empty")


def _check_checkpoint(options: Options) -> None:
    path, pattern = options.run.from_checkpoint, options.run.from_checkpoint_regex
    if path and not Path(path).exists():
        remedy = "name an existing checkpoint or log directory, or leave it empty"
        raise ConfigError("run.from_checkpoint", path, "does not exist", remedy)
    try:
        re.compile(pattern)
    except re.error as error:
        reason = f"is not a regular expression ({error})"
        raise ConfigError("run.from_checkpoint_regex", pattern, reason, "correct it, or use .* for all") from None


def _listening(options: Options) -> list[str]:
    run = options.run
    is_here = {"actor": True, "replay": not run.remote_replay, "logger": not run.remote_logger}
    return [role for role, is_ours in is_here.items() if is_ours and run.mode == "parallel"]


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
        raise ConfigError("logdir", logdir, reason, "choose a writable directory") from None
    finally:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
