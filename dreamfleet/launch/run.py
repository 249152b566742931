"""A run from its options: what the commands `train` and `role` call."""

from collections.abc import Callable

from dreamfleet.envs.registry import task_section
from dreamfleet.errors import RunRefused
from dreamfleet.launch.factories import make_factories
from dreamfleet.launch.topology import RoleSpec
from dreamfleet.options import Options, RoleOptions, forget_options, is_saved, role_options, save_options


def run_options(options: Options, task: Callable | None = None, agent: Callable | None = None) -> None:
    """Trains as the options say, which it keeps in the log directory, to the end of the run.

    `task` makes the environments and `agent` the agent, where the options only name what cannot be imported.
    """
    from dreamfleet.launch.preflight import check_run

    is_new = not is_saved(options.logdir)
    save_options(options)
    try:
        check_run(options, task)
        _run(options, task, agent)
    except RunRefused:
        if is_new:  # what never ran does not bind the next attempt
            forget_options(options.logdir)
        raise


def _run(options: Options, task: Callable | None, agent: Callable | None) -> None:
    roles, make = _role_options(options), make_factories(options, task, agent)
    if options.run.mode == "serial":
        from dreamfleet.launch.serial import run_serial

        run_serial(make, roles)
    else:
        from dreamfleet.launch.combined import run_parallel

        run_parallel(make, roles)


def run_role(kind: str, options: Options, *, index: int = 0, is_eval: bool = False) -> None:
    """Runs one role, or all environments, of a fleet whose other roles are elsewhere, until it is stopped."""
    from dreamfleet.launch.combined import join_fleet

    roles = _role_options(options, is_joined=True)
    name = f"env{index}" if kind == "env" else kind
    join_fleet(_role_specs(kind, options, roles, index, is_eval), name, roles)


def _role_specs(kind: str, options: Options, roles: RoleOptions, index: int, is_eval: bool) -> list[RoleSpec]:
    from dreamfleet.launch import combined

    make = make_factories(options)
    if kind == "replay":
        return [combined.replay_spec(make, roles)]
    if kind == "logger":
        return [combined.logger_spec(make, roles)]
    if kind == "envs":
        return combined.env_specs(make.make_env_train, make.make_env_eval, roles, first=index)
    assert kind == "env", kind
    return [combined.env_spec(make.make_env_eval if is_eval else make.make_env_train, [index], is_eval, roles)]


def _role_options(options: Options, **facts: bool) -> RoleOptions:
    repeat = options.env.action_repeat(task_section(options.task))
    return role_options(options, action_repeat=repeat, **facts)
