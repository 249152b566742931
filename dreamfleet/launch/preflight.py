"""What only an environment can tell, found out before a run starts: that it works, and what its replay takes.

It is built in a process of its own: environments may import a lot, draw on a GPU, hang, or take the process with them.
"""

import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import cloudpickle

from dreamfleet import lifecycle
from dreamfleet.base import pickles, waits
from dreamfleet.base.tracebacks import own_frames, summarize
from dreamfleet.envs.check_report import CheckReport
from dreamfleet.envs.checker import check_quickly
from dreamfleet.errors import ConfigError, RunFailed, RunRefused
from dreamfleet.launch.combined import ONE_THREAD
from dreamfleet.launch.factories import check_replay, check_replicated, load_agent_class, make_run_env
from dreamfleet.launch.supervise.supervisor import Supervisor
from dreamfleet.launch.topology import RestartPolicy, RoleSpec
from dreamfleet.options import Options

ROLE = "preflight"
STOP_GRACE_S = 1.0  # it has nothing to save
STEPS = 1000  # with random actions, as in check-env
MOST_S = 3.0  # of steps; the construction takes as long as it does
ATTEMPTS = 3  # with a seed each: what rarely goes wrong is for the run to get over
MOST_WARNINGS = 5

log = logging.getLogger("dreamfleet.preflight")


def check_run(options: Options, task: Callable | None = None, agent: Callable | None = None) -> str:
    """Prints what the replay will take; raises RunRefused if the environment, the replay or the agent cannot work.

    Returns what asked for a stop meanwhile, if anything.
    """
    run = options.run
    # Without environments on this machine, the agent still builds one for its spaces.
    steps = STEPS if run.envs and not run.remote_envs else 0
    is_replica = run.replicas > 1 and agent is None  # one that is given is looked at where it is made
    return _check_apart(options, task, Path(options.logdir), steps, not run.remote_replay, is_replica)


def check_joined(options: Options, directory: Path) -> str:
    """The same for environments that join a run from here, where the replay is not."""
    return _check_apart(options, None, directory, STEPS, has_replay=False)


def _check_apart(
    options: Options, task: Callable | None, directory: Path, steps: int, has_replay: bool, is_replica: bool = False
) -> str:
    """Runs the check in a process of its own; one that dies or hangs with the environment refuses it too."""
    call = (options, pickles.dumps(task), steps, has_replay, is_replica)
    never = RestartPolicy(restart=False)
    spec = RoleSpec(ROLE, _check, call, policy=never, is_main=True, environ=ONE_THREAD, seed=options.seed)
    supervisor = Supervisor([spec], directory, stop_grace_s=STOP_GRACE_S, on_log=_show, is_preparation=True)
    try:
        with supervisor.install_signals():
            supervisor.run()
    except RunRefused:
        raise
    except RunFailed as error:
        limits = f"a step or the construction may take run.env_timeout={options.run.env_timeout:g} s"
        reason = f"ended or hung in its check ({limits}); {_hint(options, task)}"
        raise RunRefused(f"task={options.task!r} {reason}\n{error}") from None
    return supervisor.stop_reason


def _check(options: Options, pickled_task: bytes, steps: int, has_replay: bool, is_replica: bool) -> None:
    if is_replica:  # before others wait for it
        check_replicated(options, load_agent_class(options.agent))
    report, warnings = _try(options, cloudpickle.loads(pickled_task), steps)
    for text in warnings[:MOST_WARNINGS]:
        log.info("warning: environment: %s", text)
    if has_replay and report.spaces:
        log.info(check_replay(options, report.spaces))


def _try(options: Options, task: Callable | None, steps: int) -> tuple[CheckReport, list[str]]:
    """The first report of an environment that works, and its warnings; raises ConfigError if there is none."""
    limit = lifecycle.Limit(options.run.env_timeout)
    errors: list[str] = []
    frames = ""
    for attempt in range(ATTEMPTS):
        limit.begin(waits.ENV_CONSTRUCTION(env_id=0))
        report = check_quickly(
            lambda _, number=attempt: make_run_env(options, 0, task, rebuild=number),
            steps,
            MOST_S,
            on_step=lambda: limit.begin(waits.ENV_STEP(env_id=0)),
        )
        errors += _errors(report)
        if report.raised:
            traceback.print_exception(report.raised)  # to this role's log
            frames = frames or own_frames(report.raised)
        if _is_usable(report):
            return report, errors + [finding.message for finding in report.findings if finding.level == "warning"]
        if report.spaces is None:  # not even built, which may have taken long
            break
    remedy = f"mend the environment; {_hint(options, task)}\n{frames}".rstrip()
    raise ConfigError("task", options.task, f"does not work: {errors[0]}", remedy)


def _is_usable(report: CheckReport) -> bool:
    """Whether it keeps the contract; one that raises now and then, but finishes episodes, is rebuilt by the run."""
    kinds = {finding.check for finding in report.findings if finding.level == "error"}
    return not kinds or (kinds == {"raised"} and report.episodes > 0)


def _errors(report: CheckReport) -> list[str]:
    found = [finding for finding in report.findings if finding.level == "error"]
    return [summarize(report.raised) if f.check == "raised" and report.raised else f.message for f in found]


def _hint(options: Options, task: Callable | None) -> str:
    return "dreamfleet.check_env tells more" if task else f"`dreamfleet check-env {options.task}` tells more"


def _show(role: str, level: str, text: str) -> None:
    if role == ROLE and level == "info":
        print(text, flush=True)
