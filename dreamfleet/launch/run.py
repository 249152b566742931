"""A run from its options: what the commands `train` and `role` call."""

import dataclasses
from collections.abc import Callable

from dreamfleet.base.platforms import check_platform, find_lacking
from dreamfleet.launch.factories import make_factories
from dreamfleet.launch.outcome import COMPLETE, STOPPED, Outcome
from dreamfleet.launch.topology import RoleSpec
from dreamfleet.options import Options, RoleOptions, count_most_envs, role_options, save_options, shared_options
from dreamfleet.options.tasks import task_section


def run_options(options: Options, task: Callable | None = None, agent: Callable | None = None) -> Outcome:
    """Trains as the options say, which it keeps in the log directory, to the end of the run.

    `task` makes the environments and `agent` the agent, where the options only name what cannot be imported.
    """
    from dreamfleet.launch.history import check_start, is_complete
    from dreamfleet.launch.lock import lock_logdir
    from dreamfleet.launch.preflight import check_run

    with lock_logdir(options.logdir):
        check_start(options)  # again: another run may have had the directory until now
        if is_complete(options):
            return Outcome(COMPLETE, is_old=True)
        save_options(options)
        if reason := check_run(options, task, agent):
            return Outcome(STOPPED, reason)
        return _run(options, task, agent)


def _run(options: Options, task: Callable | None, agent: Callable | None) -> Outcome:
    roles, make = _role_options(options), make_factories(options, task, agent)
    if options.run.mode == "serial":
        from dreamfleet.launch.serial import run_serial

        return run_serial(make, roles)
    from dreamfleet.launch.combined import run_parallel
    from dreamfleet.launch.replicas import replica_specs

    return run_parallel(make, roles, options, lambda gang: replica_specs(options, gang, task, agent))


def run_role(kind: str, options: Options, *, index: int | None = None, is_eval: bool = False) -> Outcome:
    """Runs one role, or all environments, of a fleet whose other roles are elsewhere, until it is stopped.

    Environments are numbered from `index`, or else as the policy server says.
    """
    if find_lacking() and kind in ("env", "envs"):
        from dreamfleet.launch.plain import run_envs

        return run_envs(options, _role_options(options), index, is_eval, is_one=kind == "env")
    check_platform(f"role {kind}")
    from dreamfleet.launch.combined import join_fleet, owned_directory

    name = kind if index is None else f"{kind}{index}"
    has_envs = kind in ("env", "envs")
    with owned_directory(_role_options(options), name, is_leased=has_envs and index is None) as (roles, directory):
        if has_envs:
            from dreamfleet.launch.preflight import check_joined

            if reason := check_joined(options, directory):
                return Outcome(STOPPED, reason)
        return join_fleet(_role_specs(kind, options, roles, index, is_eval), directory, roles)


def _role_specs(kind: str, options: Options, roles: RoleOptions, index: int | None, is_eval: bool) -> list[RoleSpec]:
    from dreamfleet.launch import combined

    make = make_factories(options)
    if kind == "replay":
        return [combined.replay_spec(make, roles)]
    if kind == "logger":
        return [combined.logger_spec(make, roles)]
    if kind == "envs":
        return combined.env_specs(make.make_env_train, make.make_env_eval, roles, first=index)
    assert kind == "env", kind
    one = {"envs": int(not is_eval), "eval_envs": int(is_eval)}
    roles = dataclasses.replace(roles, **one)
    return combined.env_specs(make.make_env_train, make.make_env_eval, roles, first=index)


def _role_options(options: Options, **facts: str) -> RoleOptions:
    repeat = options.env.action_repeat(task_section(options.task))
    shared = shared_options(options)
    return role_options(options, action_repeat=repeat, most_envs=count_most_envs(options), shared=shared, **facts)
