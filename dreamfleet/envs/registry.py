"""From a task to an environment, and what is said about tasks that lead nowhere."""

import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dreamfleet.base.extras import check_installed, install_command
from dreamfleet.base.hints import nearest
from dreamfleet.base.loader import load_option
from dreamfleet.envs.adapt import as_env, fit
from dreamfleet.envs.contract import RENDER_MODE, Env, count_envs
from dreamfleet.envs.wrappers import ActionRepeat, TimeLimit
from dreamfleet.errors import ConfigError, EnvError
from dreamfleet.options.args import read_env_options
from dreamfleet.options.env import DummyOptions, EnvOptions, GymOptions
from dreamfleet.options.tasks import is_attribute

GYM_ID = re.compile(r"[\w:./-]+-v\d+")  # CartPole-v1, ALE/Pong-v5


class Extra(NamedTuple):
    """A suite that needs packages which are not installed by default."""

    module: str  # in dreamfleet.envs.suites, with a function make_SUITE(name, seed, options)
    packages: tuple[str, ...]
    extra: str = ""  # of this package, which brings them
    other: str = ""  # the command that installs them, where no extra can
    before: str = ""  # why that is not enough, and what to do first

    @property
    def install(self) -> str:
        return self.other or install_command(self.extra)


# Procgen's packages demand an old NumPy and cffi but work with those that we use, so that no extra can bring them.
PROCGEN = "pip install imageio cffi && pip install --no-deps procgen-mirror gym3 gym gym-notices"
LABMAZE = (
    ""
    if sys.version_info < (3, 13)
    else "dm-control needs labmaze, which has no wheels for this Python: use Python 3.12, or build labmaze first and "
)
EXTRAS = {
    "atari": Extra("atari", ("ale_py",), "atari"),
    "atari100k": Extra("atari", ("ale_py",), "atari"),
    "dmc": Extra("dmc", ("dm_control",), "dmc", before=LABMAZE),
    "loconav": Extra("loconav", ("dm_control", "labmaze"), "dmc", before=LABMAZE),
    "crafter": Extra("crafter", ("crafter",), "crafter"),
    "minigrid": Extra("minigrid", ("minigrid",), "minigrid"),
    "bsuite": Extra("bsuite", ("bsuite",), "bsuite"),
    "memorymaze": Extra("memorymaze", ("memory_maze", "gym"), "memory-maze", before=LABMAZE),
    "procgen": Extra("procgen", ("procgen", "gym3", "gym", "imageio"), other=PROCGEN),
    "dmlab": Extra(
        "dmlab",
        ("deepmind_lab",),
        other="pip install --no-deps deepmind_lab-1.0-py3-none-any.whl",
        before="it is not on PyPI, as it is a game that Bazel compiles: build its wheel from google-deepmind/lab "
        "(python/pip_package in its docs/users/build.md), then ",
    ),
    "minecraft": Extra(
        "minecraft",
        ("minerl",),
        other="pip install minerl==0.4.4",
        before="it compiles Minecraft with Java and needs a gym too old for current tools to install: take a patched "
        "wheel of 0.4.4, such as danijar/minerl's, or install OpenJDK 8, setuptools<66 and wheel<0.39 first and ",
    ),
}
OWN = ("pinpad", "langroom")  # modules of dreamfleet.envs.suites that need no packages


def make_env(
    task: str | Callable,
    seed: int = 0,
    options: EnvOptions | Mapping[str, Mapping[str, Any]] | None = None,
    render: bool = False,
) -> Env:
    """Constructs the environment of `task`: `SUITE_NAME`, `module:attr` or a callable.

    `options` are those of the section `env`, as they are or as a dict by suite; those of `gym` also hold for callables.
    With `render`, Gymnasium and callables that take `render_mode` are told to draw pictures, for `envs.rendering`.
    """
    env_options = options if isinstance(options, EnvOptions) else read_env_options(options or {})
    try:
        return _make(task, seed, env_options, render)
    except SystemExit as exit:  # which would seem to be the end of the role that makes the environment
        raise EnvError(f"the task called sys.exit({exit.code!r}) when its environment was made") from exit


def _make(task: str | Callable, seed: int, env_options: EnvOptions, render: bool) -> Env:
    if render:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pictures are wanted and no windows
    if callable(task):
        return _call(task, seed, env_options.gym, render)
    check_task(task)
    if is_attribute(task):
        factory = load_option("task", task, "give module:attr of a callable that returns an environment")
        return _call(factory, seed, env_options.gym, render)
    suite, _, name = task.partition("_")
    if suite == "gym":
        return _gym(name, seed, env_options.gym, render)
    return SUITES[suite](name, seed, getattr(env_options, suite, None))


def check_task(task: str) -> None:
    """Raises ConfigError for no task and for a suite that is unknown or not installed, without importing anything."""
    if not task:
        remedy = (
            "give one, such as gym_CartPole-v1, atari_pong or module:attr, or a preset with a task, such as cartpole"
        )
        raise ConfigError("task", task, "names no environment", remedy)
    if is_attribute(task):
        return
    suite, _, name = task.partition("_")
    if suite not in SUITES:
        raise ConfigError("task", task, "names an unknown suite", f"{_guess_suite(suite, name)} (or give module:attr)")
    if suite in EXTRAS:
        extra = EXTRAS[suite]
        check_installed("task", task, extra.packages, f"{extra.before}run {extra.install}")


def _guess_suite(suite: str, name: str) -> str:
    """What may have been meant; a task without `_` may have left out just that, or the name after it."""
    known = f"known suites: {', '.join(SUITES)}"
    if GYM_ID.fullmatch(task := f"{suite}_{name}" if name else suite) and not nearest(suite, SUITES):
        return f"did you mean gym_{task}?"
    if not name:
        inside = [other for other in SUITES if suite.startswith(other) and suite != other]
        return f"did you mean {max(inside, key=len)}_{suite[len(max(inside, key=len)) :]}?" if inside else known
    near = [f"{other}_{name}" for other in nearest(suite, SUITES)]
    return f"did you mean {' or '.join(near)}?" if near else known


def check_dummy(name: str) -> None:
    """Raises ConfigError for a name that there is no dummy of."""
    if name not in ("image", "vector"):
        raise ConfigError("task", f"dummy_{name}", "is unknown", "use dummy_image or dummy_vector")


def _dummy(name: str, seed: int, options: DummyOptions) -> Env:
    from dreamfleet.envs.dummy import Dummy

    check_dummy(name)
    return Dummy(name, options.length, options.size, seed)


def _gym(name: str, seed: int, options: GymOptions, render: bool = False) -> Env:
    import gymnasium

    def make(render_mode: str | None = None):
        env = gymnasium.make(name)
        if render_mode not in env.metadata.get("render_modes", ()):
            return env
        env.close()
        return gymnasium.make(name, render_mode=render_mode)

    try:
        return _call(make, seed, options, render)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise explain_gym_error(name, error) from error


def explain_gym_error(name: str, error: Exception) -> ConfigError:
    """The error of a task that Gymnasium cannot make."""
    remedy = "check the id and the package that brings it; gym_PACKAGE:ID imports the package first"
    return ConfigError("task", f"gym_{name}", f"cannot be made by Gymnasium ({error})", remedy)


def _import(suite: str, module: str, name: str, seed: int, options: Any) -> Env:
    make = getattr(importlib.import_module(f"dreamfleet.envs.suites.{module}"), f"make_{suite}")
    return make(name, seed, options)


def _call(factory: Callable, seed: int, options: GymOptions, render: bool) -> Env:
    """Calls a user's factory, with the seed if it takes one, and makes one of our environments of what it returns."""
    given = {"seed": seed, **({"render_mode": RENDER_MODE} if render else {})}
    made: Any = factory(**{name: value for name, value in given.items() if takes(factory, name)})
    env = as_env(made, seed, options.size, options.info)
    env = fit(env, options.size) if env is made else env
    repeat, length = options.repeat, options.length
    if (repeat > 1 or length) and count_envs(env):
        key, value = ("env.gym.repeat", repeat) if repeat > 1 else ("env.gym.length", length)
        raise ConfigError(key, value, "is not supported for vector environments", "apply it inside of them")
    env = ActionRepeat(env, repeat) if repeat > 1 else env
    return TimeLimit(env, length) if length else env


def takes(factory: Callable, name: str) -> bool:
    """Whether a factory has a parameter of this name."""
    try:
        return name in inspect.signature(factory).parameters
    except ValueError:  # a callable without a signature, such as some built into C
        return False


SUITES: dict[str, Callable[..., Env]] = {
    "dummy": _dummy,
    "gym": _gym,
    **{suite: functools.partial(_import, suite, suite) for suite in OWN},
    **{suite: functools.partial(_import, suite, extra.module) for suite, extra in EXTRAS.items()},
}
