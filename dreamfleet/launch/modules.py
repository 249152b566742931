"""Finds the modules and packages that options name without importing them, which may be slow or need a GPU."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

from dreamfleet.envs.registry import check_task, is_attribute
from dreamfleet.errors import ConfigError
from dreamfleet.metrics.writers import check_outputs
from dreamfleet.options import Options


def check_modules(options: Options, *keys: str) -> None:
    """Raises ConfigError if one of `keys` names a module that is not found, or a suite whose package is not.

    The working directory counts as a place for modules, however the command was started.
    """
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    for key in keys:
        if key == "logger.outputs":
            check_outputs(options.logger.outputs)
            continue
        name = options.task if key == "task" else options.agent
        if key == "task":
            check_task(name)
        module, has_module, _ = name.partition(":")
        is_module = has_module and (key != "task" or is_attribute(name))
        missing = _first_missing(module) if is_module else None
        if missing:
            reason = f"names module {missing}, which was not found"
            remedy = "check the spelling, install its package, or run from its directory"
            raise ConfigError(key, name, reason, remedy)


def _first_missing(module: str) -> str | None:
    parts = module.split(".")
    try:
        spec = importlib.util.find_spec(parts[0])
    except ValueError:  # a loaded module without a spec, such as __main__
        return None
    # importlib.util.find_spec would import the parents of a dotted name, PathFinder does not.
    for end in range(1, len(parts)):
        if spec is None:
            return ".".join(parts[:end])
        name = ".".join(parts[: end + 1])
        spec = importlib.machinery.PathFinder.find_spec(name, spec.submodule_search_locations or [])
    return module if spec is None else None
