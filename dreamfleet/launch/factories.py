"""From a config to the factories that a run is made of: agent, replay, environments, stream and logger."""

import functools
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import elements
import numpy as np

from dreamfleet.envs import Env, make_env
from dreamfleet.errors import ConfigError
from dreamfleet.launch.topology import derive_seed
from dreamfleet.metrics import make_writers
from dreamfleet.options import agent_settings, config_args
from dreamfleet.options.roles import sequence_length
from dreamfleet.replay import Batch, Replay, Selection, Store, consecutive_batches
from dreamfleet.replay.schema import Column, Schema
from dreamfleet.replay.segment import BLOCK_ROWS
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


def make_factories(config: elements.Config, task: Callable | None = None, agent: Callable | None = None) -> Factories:
    """Factories that can be sent to any process; `task` and `agent` stand for what the config names, if given."""
    bind = functools.partial
    return Factories(
        make_agent=bind(make_config_agent, config, task, agent),
        make_replay_train=bind(make_config_replay, config, "train"),
        make_replay_eval=bind(make_config_replay, config, "eval"),
        make_env_train=bind(make_config_env, config, task=task),
        make_env_eval=bind(make_config_env, config, task=task),
        make_stream=bind(make_config_stream, config),
        make_logger=bind(make_config_logger, config),
    )


def make_config_agent(config: elements.Config, task: Callable | None = None, agent: Callable | None = None) -> Any:
    """The agent that `agent` is or the config names, built for the spaces of the task."""
    env = make_config_env(config, 0, task)
    obs_space = {k: v for k, v in env.obs_space.items() if not k.startswith("log/")}
    act_space = dict(env.act_space)
    env.close()
    make_agent = agent or load_agent_class(config.agent)
    return make_agent(obs_space, act_space, agent_settings(config))


def load_agent_class(name: str) -> Any:
    """What `module:attr` names, with an error that says what is wrong with it."""
    module, _, attr = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attr)
    except (ImportError, AttributeError, ValueError) as e:
        remedy = "give module:attr of a class in a module that Python finds"
        raise ConfigError("agent", name, f"cannot be imported ({e})", remedy) from e


def make_config_env(config: elements.Config, index: int, task: Callable | None = None, incarnation: int = 0) -> Env:
    """Environment number `index` of the task, with a seed of its own in each incarnation."""
    return make_env(task or config.task, derive_seed(config.seed, "env", index, incarnation), dict(config.env))


def make_config_replay(config: elements.Config, mode: str) -> Store:
    """The replay for training, or a smaller one for evaluation data."""
    options, length = config.replay, sequence_length(config_args(config))
    is_train = mode == "train"
    least = _least_capacity(config, mode)
    selection = Selection(
        uniform=options.uniform,
        recency=options.recency,
        priority=options.priority,
        recency_exponent=options.recency_exponent,
        exponent=options.priority_exponent,
        initial=options.priority_initial,
        max_fraction=options.priority_max,
        zero_on_sample=options.priority_zero,
    )
    return Store(
        length,
        options.capacity if is_train else max(options.capacity // 10 or EVAL_STEPS, 2 * length, least),
        least=least,
        directory=replay_directory(config) / mode if options.storage == "disk" else None,
        steps=config.run.steps,
        selection=selection if is_train else None,
        online=options.online and is_train,
        sync_every=options.sync_every,
        truncates=config.run.mode == "serial",
        seed=derive_seed(config.seed, f"replay_{mode}", 0, 0),
    )


def _least_capacity(config: elements.Config, mode: str) -> int:
    """What the environments need to have a sequence each."""
    envs = config.run.envs if mode == "train" else config.run.eval_envs
    return envs * (sequence_length(config_args(config)) + BLOCK_ROWS)


def replay_directory(config: elements.Config) -> Path:
    """Where the steps are kept on disk, with a directory each for training and evaluation."""
    return Path(config.replay.directory or f"{config.logdir}/replay").expanduser().absolute()


def check_replay(config: elements.Config, task: Callable | None = None) -> str:
    """What the replay will take, as far as the task alone tells; raises ConfigError if not even that fits."""
    env = make_config_env(config, 0, task)
    spaces = {**env.obs_space, **env.act_space}
    env.close()
    schema = Schema(
        Column(key, np.dtype(space.dtype), tuple(space.shape))
        for key, space in spaces.items()
        if key != "reset" and not key.startswith("log/")
    )
    is_disk, directory = config.replay.storage == "disk", replay_directory(config) / "train"
    room, place = (disk_room(directory), str(directory)) if is_disk else (memory_room(), "memory")
    capacity = config.replay.capacity or max(
        choose_capacity(schema, config.run.steps, room), _least_capacity(config, "train")
    )
    geometry = plan(schema, capacity)
    check_fit(geometry, capacity, room, place)
    size = format_bytes(geometry.total_bytes)
    return f"replay buffer: {capacity:,} steps, at least {size} ({schema.row_bytes:,} bytes per step) in {place}"


def make_config_stream(config: elements.Config, replay: Replay, mode: str) -> Iterator[Batch]:
    """Batches of a mode from a replay."""
    is_train = mode == "train"
    return consecutive_batches(
        replay,
        mode,
        batch_size=config.batch_size,
        length=config.batch_length if is_train else config.report_length,
        consec=config.consec_train if is_train else config.consec_report,
        context=config.replay_context,
    )


def make_config_logger(config: elements.Config) -> elements.Logger:
    """A logger with the writers that `logger.outputs` names."""
    writers = make_writers(config.logger.outputs, config.logdir, config.logger.fps, config.flat)
    return elements.Logger(elements.Counter(), writers)
