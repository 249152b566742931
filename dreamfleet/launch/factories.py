"""From options to the factories that a run is made of: agent, replay, environments, stream and logger."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import elements
import numpy as np

from dreamfleet import lifecycle
from dreamfleet.base.dimensions import BLOCK_ROWS
from dreamfleet.base.keys import without_logs
from dreamfleet.base.loader import load_option
from dreamfleet.envs import Env, make_env
from dreamfleet.launch.topology import derive_seed
from dreamfleet.metrics import make_writers
from dreamfleet.options import Options, agent_options, flatten
from dreamfleet.replay import Batch, Replay, Store, consecutive_batches
from dreamfleet.replay.schema import Column, Schema
from dreamfleet.replay.space import check_fit, choose_capacity, disk_room, format_bytes, memory_room, plan

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
        make_env_train=bind(make_run_env, options, task=task),
        make_env_eval=bind(make_run_env, options, task=task),
        make_stream=bind(make_run_stream, options),
        make_logger=bind(make_run_logger, options),
    )


def make_run_agent(options: Options, task: Callable | None = None, agent: Callable | None = None) -> Any:
    """The agent that `agent` is or the options name, built for the spaces of the task."""
    env = make_run_env(options, 0, task)
    obs_space = without_logs(env.obs_space)
    act_space = dict(env.act_space)
    env.close()
    make_agent = agent or load_agent_class(options.agent)
    return make_agent(obs_space, act_space, agent_options(options))


def load_agent_class(name: str) -> Any:
    """What `module:attr` names, with an error that says what is wrong with it."""
    return load_option("agent", name, "give module:attr of a class in a module that Python finds")


def make_run_env(options: Options, index: int, task: Callable | None = None, rebuild: int = 0) -> Env:
    """Environment number `index` of the task, with a seed of its own in each life of its process and each rebuild."""
    seed = derive_seed(options.seed, "env", index, lifecycle.incarnation(), rebuild)
    return make_env(task or options.task, seed, options.env)


def make_run_replay(options: Options, mode: str) -> Store:
    """The replay for training, or a smaller one for evaluation data."""
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
        seed=derive_seed(options.seed, f"replay_{mode}", 0, lifecycle.incarnation()),
    )


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
    is_disk, directory = options.replay.storage == "disk", options.replay_directory / "train"
    room, place = (disk_room(directory), str(directory)) if is_disk else (memory_room(), "memory")
    capacity = options.replay.capacity or max(
        choose_capacity(schema, options.run.steps, room), _least_capacity(options, "train")
    )
    geometry = plan(schema, capacity)
    check_fit(geometry, capacity, room, place)
    size = format_bytes(geometry.total_bytes)
    return f"replay buffer: {capacity:,} steps, at least {size} ({schema.row_bytes:,} bytes per step) in {place}"


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
    """A logger with the writers that `logger.outputs` names."""
    logger = options.logger
    writers = make_writers(
        logger.outputs,
        options.logdir,
        logger.fps,
        flatten(options),
        reports=logger.reports,
        metric_names=logger.names,
    )
    run_logger = elements.Logger(elements.Counter(), writers)
    run_logger.keeps_episodes = True  # type: ignore[attr-defined]
    return run_logger
