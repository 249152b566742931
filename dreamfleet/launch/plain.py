"""Environments that join a run from systems without what a supervisor needs, such as macOS and Windows.

One process steps them all: an environment that hangs or takes the process with it is not replaced.
"""

import dataclasses
import uuid

from dreamfleet import lifecycle
from dreamfleet.errors import ConfigError
from dreamfleet.launch.factories import make_factories
from dreamfleet.launch.outcome import COMPLETE, STOPPED, Outcome, stop_signals
from dreamfleet.options import Options, RoleOptions
from dreamfleet.roles.env import env_worker
from dreamfleet.roles.leasing import leased_env_worker


def run_envs(options: Options, roles: RoleOptions, index: int | None, is_eval: bool, is_one: bool) -> Outcome:
    """Steps one environment, or all that the options name, in this process until the run is over or it is stopped."""
    if not is_one and roles.envs and roles.eval_envs:
        reason = "needs a second process beside run.envs, which cannot be started on this system"
        raise ConfigError("run.eval_envs", roles.eval_envs, reason, "join with them by a command of their own")
    is_eval = is_eval or (not is_one and not roles.envs)
    count = 1 if is_one else roles.envs + roles.eval_envs
    make = make_factories(options)
    roles = dataclasses.replace(roles, owner=uuid.uuid4().hex)  # beside others on this machine
    received: list[str] = []

    def stop(name: str) -> None:
        received.append(name)
        lifecycle.stop_soon()

    make_env = make.make_env_eval if is_eval else make.make_env_train
    print(f"stepping {count} environments in one process, without a supervisor", flush=True)
    with stop_signals(stop):
        work = leased_env_worker if index is None else env_worker
        work(make_env, [(index or 0) + i for i in range(count)], roles, is_eval)
    return Outcome(STOPPED, received[0]) if received else Outcome(COMPLETE)
