"""What only an environment can tell, found out before a run starts: that it can be built, and what its replay takes.

It is built in a process of its own: environments may import a lot, draw on a GPU, hang, or take the process with them.
"""

import logging
from collections.abc import Callable

import cloudpickle

from dreamfleet import lifecycle
from dreamfleet.errors import RunFailed, RunRefused
from dreamfleet.launch.combined import ONE_THREAD
from dreamfleet.launch.factories import check_replay
from dreamfleet.launch.supervise.supervisor import Supervisor
from dreamfleet.launch.topology import RestartPolicy, RoleSpec
from dreamfleet.options import Options

ROLE = "preflight"
STOP_GRACE_S = 1.0  # it has nothing to save

log = logging.getLogger("dreamfleet.preflight")


def check_run(options: Options, task: Callable | None = None) -> str:
    """Prints what the replay will take; raises RunRefused if the task or the replay cannot work.

    Returns what asked for a stop meanwhile, if anything.

    An environment that fails otherwise may do better later, which is for the supervisor of the run to find out.
    """
    run = options.run
    if run.remote_envs or run.remote_replay or run.envs == 0:
        return ""  # there are no environments, or no replay, on this machine
    call = (options, cloudpickle.dumps(task))
    never = RestartPolicy(restart=False)
    spec = RoleSpec(ROLE, _check, call, policy=never, is_main=True, environ=ONE_THREAD, seed=options.seed)
    supervisor = Supervisor([spec], options.logdir, stop_grace_s=STOP_GRACE_S, on_log=_show)
    try:
        with supervisor.install_signals():
            supervisor.run()
    except RunRefused:
        raise
    except RunFailed:
        pass
    return supervisor.stop_reason


def _check(options: Options, task: bytes) -> None:
    limit = lifecycle.Limit(options.run.env_timeout)
    limit.begin("environment 0: construction")
    log.info(check_replay(options, cloudpickle.loads(task)))


def _show(role: str, level: str, text: str) -> None:
    if role == ROLE and level == "info":
        print(text, flush=True)
