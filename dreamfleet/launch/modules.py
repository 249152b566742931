"""Finds the tasks, modules and packages that options name; a user's modules are not imported for that, only read."""

import ast
import importlib.machinery
import importlib.util
import sys
import sysconfig
from pathlib import Path

from dreamfleet.base.hints import did_you_mean
from dreamfleet.envs.existence import check_exists
from dreamfleet.errors import ConfigError
from dreamfleet.metrics.writers import check_outputs
from dreamfleet.options import Options
from dreamfleet.options.tasks import is_attribute

UNSURE = ("*", "__getattr__", "exec", "globals", "setattr", "vars")  # a module that uses these may define anything


def check_modules(options: Options, *keys: str) -> None:
    """Raises ConfigError if one of `keys` names a module, an attribute of it, or a task that is not found.

    The working directory counts as a place for modules, however the command was started.
    """
    _add_place(str(Path.cwd()))
    for key in keys:
        if key == "logger.outputs":
            check_outputs(options.logger.outputs)
            continue
        name = options.task if key == "task" else options.agent
        if key == "task":
            check_exists(name)
        if ":" in name and (key != "task" or is_attribute(name)):
            _check_module(key, name)


def _add_place(directory: str) -> None:
    """Behind the standard library: a file of the user's may be called queue.py and have nothing to do with the run."""
    if directory not in sys.path:
        library = sysconfig.get_path("stdlib")
        places = [i for i, path in enumerate(sys.path) if path.startswith(library) and "-packages" not in path]
        sys.path.insert(max(places, default=-1) + 1, directory)


def _check_module(key: str, name: str) -> None:
    module, _, path = name.partition(":")
    _refuse_file_names(key, name, module)
    if missing := _first_missing(module):
        reason = f"names module {missing}, which was not found"
        remedy = "check the spelling, install its package, or run from its directory"
        raise ConfigError(key, name, reason, remedy)
    names, attribute = _read_names(module), path.partition(".")[0]
    if names and attribute not in names:
        near = did_you_mean(attribute, names, "check the spelling")
        raise ConfigError(key, name, f"names {attribute}, which module {module} does not have", near)


def _refuse_file_names(key: str, name: str, module: str) -> None:
    """Raises ConfigError for a file in place of its module, and for a file that Python's own module hides."""
    if module.endswith(".py"):
        meant = module.removesuffix(".py")
        raise ConfigError(key, name, "names a file", f"name its module: {meant}:{name.partition(':')[2] or 'ATTR'}")
    file = Path(f"{module}.py").absolute()
    spec = _find_spec(module) if module in sys.stdlib_module_names and file.exists() else None
    if spec and spec.origin != str(file):
        reason = f"names a module of Python, which is found instead of {module}.py"
        raise ConfigError(key, name, reason, "rename the file")


def _read_names(module: str) -> set[str]:
    """All names in the source of a module; empty where it may have others, which only running it would tell."""
    spec = _find_spec(module)
    if module in sys.modules or spec is None or not (spec.origin or "").endswith(".py"):
        return set()
    try:
        nodes = list(ast.walk(ast.parse(Path(str(spec.origin)).read_bytes())))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
    return names if names.isdisjoint(UNSURE) else set()


def _find_spec(module: str) -> importlib.machinery.ModuleSpec | None:
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except ValueError:  # a loaded module without a spec, such as __main__
        return None
    # importlib.util.find_spec would import the parents of a dotted name, PathFinder does not.
    parts = module.split(".")
    for end in range(2, len(parts) + 1):
        if spec is None:
            return None
        places = spec.submodule_search_locations or []
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), places)
    return spec


def _first_missing(module: str) -> str | None:
    parts = module.split(".")
    try:
        importlib.util.find_spec(parts[0])
    except ValueError:  # a loaded module without a spec, such as __main__
        return None
    prefixes = (".".join(parts[: end + 1]) for end in range(len(parts)))
    return next((prefix for prefix in prefixes if _find_spec(prefix) is None), None)
