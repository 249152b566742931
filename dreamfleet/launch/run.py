"""A run from its config: what the commands `train` and `role` call."""

from collections.abc import Callable

import elements

from dreamfleet.envs.registry import task_section
from dreamfleet.errors import RunRefused
from dreamfleet.launch.factories import Factories, make_factories
from dreamfleet.launch.topology import RoleSpec
from dreamfleet.options import config_args, forget_config, is_saved, save_config
from dreamfleet.options.roles import with_defaults


def run_config(config: elements.Config, task: Callable | None = None, agent: Callable | None = None) -> None:
    """Trains as the config says, which it keeps in the log directory, to the end of the run.

    `task` makes the environments and `agent` the agent, where the config only has a name for what cannot be imported.
    """
    from dreamfleet.launch.preflight import check_run

    is_new = not is_saved(config.logdir)
    save_config(config, config.logdir)
    try:
        check_run(config, task)
        _run(config, task, agent)
    except RunRefused:
        if is_new:  # what never ran does not bind the next attempt
            forget_config(config.logdir)
        raise


def _run(config: elements.Config, task: Callable | None, agent: Callable | None) -> None:
    args, factories = _make_args(config), make_factories(config, task, agent)
    if config.run.mode == "serial":
        from dreamfleet.launch.serial import run_serial

        run_serial(factories, args)
    else:
        from dreamfleet.launch.combined import combined

        combined(*factories, args)


def run_role(kind: str, config: elements.Config, *, index: int = 0, is_eval: bool = False) -> None:
    """Runs one role, or all environments, of a fleet whose other roles are elsewhere, until it is stopped."""
    from dreamfleet.launch.combined import join_fleet

    args = with_defaults(elements.Config({**_make_args(config), "is_joined": True}))
    name = f"env{index}" if kind == "env" else kind
    join_fleet(_role_specs(kind, make_factories(config), args, index, is_eval), name, args)


def _role_specs(kind: str, make: Factories, args: elements.Config, index: int, is_eval: bool) -> list[RoleSpec]:
    from dreamfleet.launch import combined

    if kind == "replay":
        return [combined.replay_spec(make.make_replay_train, make.make_replay_eval, make.make_stream, args)]
    if kind == "logger":
        return [combined.logger_spec(make.make_logger, args)]
    if kind == "envs":
        return combined.env_specs(make.make_env_train, make.make_env_eval, args)
    assert kind == "env", kind
    return [combined.env_spec(make.make_env_eval if is_eval else make.make_env_train, [index], is_eval, args)]


def _make_args(config: elements.Config) -> elements.Config:
    options = config.env.get(task_section(config.task), {})
    return elements.Config({**config_args(config), "action_repeat": options.get("repeat", 1)})
