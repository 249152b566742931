"""From options to the factories that a run is made of: agent, replay, environments, stream and logger."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import elements
import numpy as np

from dreamfleet import lifecycle
from dreamfleet.agent.contract import ReplicaPlace
from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.base.keys import without_logs
from dreamfleet.base.loader import load_option
from dreamfleet.base.logdir import HELD_OUT
from dreamfleet.base.seeds import derive_seed, replica_seed
from dreamfleet.envs import Env, make_env
from dreamfleet.errors import ConfigError, ReplayError
from dreamfleet.metrics import make_writers
from dreamfleet.options import Options, agent_options, flatten
from dreamfleet.options.env import BsuiteOptions
from dreamfleet.options.replay import ReplayOptions
from dreamfleet.replay import Batch, Replay, Store, consecutive_batches
from dreamfleet.replay.archive import Archive
from dreamfleet.replay.frozen import FrozenStore
from dreamfleet.replay.mixed import MixedStore
from dreamfleet.replay.schema import Column, Schema
from dreamfleet.replay.space import (
    check_fit,
    choose_capacity,
    disk_room,
    format_bytes,
    memory_room,
    plan,
    refuse_network,
)

EVAL_STEPS = 10_000  # of evaluation data that are kept when no capacity is given


class Factories(NamedTuple):
    """The callables of a run, in the order in which `combined` takes them."""

    make_agent: Any
    make_replay_train: Any
    make_replay_eval: Any
    make_env_train: Any
    make_env_eval: Any
    make_stream: Any
    make_logger: Any


def make_factories(options: Options, task: Callable | None = None, agent: Callable | None = None) -> Factories:
    """Factories that can be sent to any process; `task` and `agent` stand for what the options name, if given."""
    bind = functools.partial
    return Factories(
        make_agent=bind(make_run_agent, options, task, agent),
        make_replay_train=bind(make_run_replay, options, "train"),
        make_replay_eval=bind(make_run_replay, options, "eval"),
        make_env_train=bind(make_run_env, options, task=task, has_results=True),
        make_env_eval=bind(make_run_env, options, task=task),
        make_stream=bind(make_run_stream, options),
        make_logger=bind(make_run_logger, options),
    )


def make_run_agent(
    options: Options,
    task: Callable | None = None,
    agent: Callable | None = None,
    place: ReplicaPlace | None = None,
) -> Any:
    """The agent that `agent` is or the options name, built for the spaces of the task; with a place one of several."""
    make_agent: Any = agent or load_agent_class(options.agent)
    if place:
        check_replicated(options, make_agent)
        make_agent.join_replicas(place, agent_options(options))
    env = make_run_env(options, 0, task)
    obs_space = without_logs(env.obs_space)
    act_space = dict(env.act_space)
    env.close()
    return make_agent(obs_space, act_space, agent_options(options))


def check_replicated(options: Options, make_agent: Any) -> None:
    """Refuses an agent that cannot be trained by several processes."""
    lacking = [name for name in ("join_replicas", "share_state", "prepare_update") if not hasattr(make_agent, name)]
    if lacking:
        reason = f"has no {', '.join(lacking)}, which run.replicas={options.run.replicas} needs"
        remedy = "add them (dreamfleet.agent.contract.ReplicatedAgent), or set run.replicas to 1"
        raise ConfigError("agent", options.agent, reason, remedy)


def load_agent_class(name: str) -> Any:
    """What `module:attr` names, with an error that says what is wrong with it."""
    return load_option("agent", name, "give module:attr of a class in a module that Python finds")


def make_run_env(
    options: Options, index: int, task: Callable | None = None, rebuild: int = 0, has_results: bool = False
) -> Env:
    """Environment number `index` of the task, with a seed of its own in each life of its process and each rebuild.

    With `has_results`, the first of them writes the result files of its suite, if it has any.
    """
    seed = derive_seed(_data_seed(options), "env", index, lifecycle.incarnation(), rebuild)
    results = options.env.bsuite.results or str(Path(options.logdir) / "bsuite")
    bsuite = BsuiteOptions(results if has_results and index == 0 else "")
    return make_env(task or options.task, seed, dataclasses.replace(options.env, bsuite=bsuite))


def make_run_replay(options: Options, mode: str) -> Replay:
    """The replay for training, or that of evaluation: a smaller one, or the episodes that were held out of training."""
    replay, is_train = options.replay, mode == "train"
    held_out = options.replay_directory / HELD_OUT
    if not is_train and (held_out / "state").is_file():
        return _open_frozen(options, held_out, mode)
    store = _make_store(options, mode)
    if not is_train or not replay.mix:
        return store
    try:
        other = _open_frozen(options, replay.mix, "mix", sampling=replay)
    except BaseException:
        store.close()
        raise
    return MixedStore(store, other, replay.mix_share, options.replay_context)


def _open_frozen(
    options: Options, directory: str | Path, name: str, sampling: ReplayOptions | None = None
) -> FrozenStore:
    is_serial = options.run.mode == "serial"
    seed = derive_seed(_data_seed(options), f"replay_{name}", 0, lifecycle.incarnation())
    return FrozenStore(options.sequence_length, directory, sampling=sampling, truncates=is_serial, seed=seed)


def _make_store(options: Options, mode: str) -> Store:
    replay, length = options.replay, options.sequence_length
    is_train = mode == "train"
    least = _least_capacity(options, mode)
    return Store(
        length,
        replay.capacity if is_train else max(replay.capacity // 10 or EVAL_STEPS, 2 * length, least),
        least=least,
        directory=options.replay_directory / mode if replay.storage == "disk" else None,
        steps=options.run.steps,
        sampling=replay if is_train else None,
        online=replay.online and is_train,
        sync_every=replay.sync_every,
        truncates=options.run.mode == "serial",
        seed=derive_seed(_data_seed(options), f"replay_{mode}", 0, lifecycle.incarnation()),
    )


def _data_seed(options: Options) -> int:
    """That of environments and replay, which differ between replicas."""
    return replica_seed(options.seed, options.run.replica)


def _least_capacity(options: Options, mode: str) -> int:
    """What the environments need to have a sequence each."""
    envs = options.run.envs if mode == "train" else options.run.eval_envs
    return envs * (options.sequence_length + BLOCK_ROWS)


def check_replay(options: Options, spaces: dict[str, elements.Space]) -> str:
    """What the replay will take, as far as the task's spaces tell; raises ConfigError if not even that fits."""
    schema = Schema(
        Column(key, np.dtype(space.dtype), tuple(space.shape))
        for key, space in without_logs(spaces).items()
        if key != "reset"
    )
    _check_recorded(options, schema)
    is_disk, directory = options.replay.storage == "disk", options.replay_directory / "train"
    if is_disk:
        refuse_network(directory)
    room, place = (disk_room(directory), str(directory)) if is_disk else (memory_room(), "memory")
    capacity = options.replay.capacity or max(
        choose_capacity(schema, options.run.steps, room), _least_capacity(options, "train")
    )
    geometry = plan(schema, capacity)
    check_fit(geometry, capacity, room, place)
    size = format_bytes(geometry.total_bytes)
    return f"replay buffer: {capacity:,} steps, at least {size} ({schema.row_bytes:,} bytes per step) in {place}"


def _check_recorded(options: Options, schema: Schema) -> None:
    """Refuses steps recorded elsewhere that the run is to learn from, if they are not of the task or too few."""
    mix, own, held_out = options.replay.mix, options.replay_directory, options.replay_directory / HELD_OUT
    recorded = [("replay.mix", mix)] if mix else []
    recorded += [("replay.directory", own)] if options.run.is_offline else []
    recorded += [("replay.directory", held_out)] if (held_out / "state").is_file() else []
    for key, directory in recorded:
        try:
            archive = Archive(directory)
            columns = archive.schema.columns
        except ReplayError as error:
            raise ConfigError(key, str(directory), f"cannot be used ({error})", "name one that holds steps") from error
        present = Schema(column for name, column in columns.items() if name in schema.columns)
        if difference := schema.difference(present):
            reason = f"holds steps of another kind than task {options.task}: {difference}"
            raise ConfigError(key, str(directory), reason, "use steps of the same task and environment options")
        count, length = archive.count_sequences(options.sequence_length), options.sequence_length
        if count < options.batch_size:
            reason = f"holds {count} sequences of {length} steps, but a batch has {options.batch_size}"
            raise ConfigError(key, str(directory), reason, "use more episodes, or lower batch_length or batch_size")


def make_run_stream(options: Options, replay: Replay, mode: str) -> Iterator[Batch]:
    """Batches of a mode from a replay."""
    is_train = mode == "train"
    return consecutive_batches(
        replay,
        mode,
        batch_size=options.batch_size,
        length=options.batch_length if is_train else options.report_length,
        consec=options.consec_train if is_train else options.consec_report,
        context=options.replay_context,
    )


def make_run_logger(options: Options) -> elements.Logger:
    """A logger with the writers that `logger.outputs` names; replicas other than the first write nothing."""
    run_logger = elements.Logger(elements.Counter(), [_discard] if options.run.replica else _make_writers(options))
    run_logger.keeps_episodes = True  # type: ignore[attr-defined]
    return run_logger


def _make_writers(options: Options) -> list[Callable]:
    logger = options.logger
    return make_writers(
        logger.outputs,
        options.logdir,
        logger.fps,
        flatten(options),
        reports=logger.reports,
        metric_names=logger.names,
    )


def _discard(_: Any) -> None:
    """A writer that writes nothing: the logger wants one."""
