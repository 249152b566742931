"""From a task name to an environment."""

import difflib
import importlib
import inspect
from typing import Any

from dreamfleet.envs.contract import Env
from dreamfleet.errors import ConfigError


def make_env(task: str, seed: int, options: dict[str, dict] | None = None) -> Env:
    """Constructs the environment of `task`: `SUITE_NAME` or `module:attr`; `options` are keyword arguments by suite."""
    if ":" in task:
        return _from_attribute(task, seed)
    suite, _, name = task.partition("_")
    if suite not in SUITES:
        near = difflib.get_close_matches(suite, SUITES, 1)
        hint = f"did you mean {near[0]}_{name}?" if near else f"known suites: {', '.join(SUITES)}"
        raise ConfigError("task", task, "names an unknown suite", f"{hint}, or give module:attr")
    return SUITES[suite](name, seed, **(options or {}).get(suite, {}))


def _dummy(name: str, seed: int, length: int = 100, size: int = 64) -> Env:
    from dreamfleet.envs.dummy import Dummy

    if name not in ("image", "vector"):
        raise ConfigError("task", f"dummy_{name}", "is unknown", "use dummy_image or dummy_vector")
    return Dummy(name, length, size, seed)


def _gym(name: str, seed: int) -> Env:
    import gymnasium

    from dreamfleet.envs.gymnasium import FromGymnasium

    try:
        return FromGymnasium(gymnasium.make(name), seed)
    except gymnasium.error.Error as e:
        raise ConfigError(
            "task", f"gym_{name}", f"cannot be made by Gymnasium ({e})", "check the id and the package that brings it"
        ) from e


def _from_attribute(task: str, seed: int) -> Env:
    module, _, attr = task.partition(":")
    try:
        factory: Any = getattr(importlib.import_module(module), attr)
    except (ImportError, AttributeError, TypeError, ValueError) as e:  # the last two for `:attr` and `.module:attr`
        raise ConfigError(
            "task", task, f"cannot be imported ({e})", "give module:attr of a callable that returns an environment"
        ) from e
    takes_seed = "seed" in inspect.signature(factory).parameters
    env = factory(seed=seed) if takes_seed else factory()
    if hasattr(env, "observation_space"):
        from dreamfleet.envs.gymnasium import FromGymnasium

        return FromGymnasium(env, seed)
    return env


SUITES = {"dummy": _dummy, "gym": _gym}
