"""Whether a task exists, found out in a second and without making an environment; asked before a run starts.

What only the environment itself can tell is left to the preflight, which builds one in a process of its own.
"""

import importlib

from dreamfleet.envs.registry import EXTRAS, OWN, check_dummy, check_task, explain_gym_error
from dreamfleet.errors import ConfigError
from dreamfleet.options.tasks import is_attribute


def check_exists(task: str) -> None:
    """Raises ConfigError for a task that no suite has; modules of the user's are not imported, nor looked for."""
    check_task(task)
    if is_attribute(task):
        return
    suite, _, name = task.partition("_")
    if suite == "gym":
        _check_gym(name)
    elif suite == "dummy":
        check_dummy(name)
    else:
        _check_suite(suite, name)


def _check_gym(name: str) -> None:
    import gymnasium

    if ":" in name:  # its module would have to be imported first
        return
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error as error:
        raise explain_gym_error(name, error) from error


def _check_suite(suite: str, name: str) -> None:
    module = suite if suite in OWN else EXTRAS[suite].module
    try:
        importlib.import_module(f"dreamfleet.envs.suites.{module}").check(suite, name)
    except ConfigError:
        raise
    except Exception:  # a package that does not work here, which the preflight shows with its traceback
        return
