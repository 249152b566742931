"""Builds the config of a run from defaults, presets and overrides; called by whoever starts a run."""

import functools
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import elements
from ruamel.yaml import YAML

from dreamfleet.base.hints import nearest
from dreamfleet.errors import ConfigError
from dreamfleet.options.values import parse_value, parse_words, resolve_key

DEFAULTS = Path(__file__).parent / "defaults.yaml"
PRESETS = Path(__file__).parent / "presets.yaml"

# The root keys that the roles read besides the section `run`.
ROLE_KEYS = (
    "logdir",
    "seed",
    "batch_size",
    "batch_length",
    "report_length",
    "consec_train",
    "consec_report",
    "replay_context",
)


def load_config(
    overrides: Mapping[str, Any] | Sequence[str] = (),
    presets: Iterable[str] = (),
    base: elements.Config | None = None,
    flags: Iterable[str] = (),
) -> elements.Config:
    """Layers presets, in order, and then overrides (a mapping or command line words) on the defaults or on `base`.

    `flags` are names that are options of the command but not of the config, suggested when a key is unknown.
    """
    config = load_defaults() if base is None else base
    known = load_presets()
    for name in presets:
        if name not in known:
            near = nearest(name, known)
            hint = f" (did you mean {' or '.join(near)}?)" if near else ""
            raise ConfigError("preset", name, "is unknown", f"choose from {', '.join(known)}{hint}")
        config = _apply(config, known[name])
    words = overrides if isinstance(overrides, Mapping) else parse_words(overrides)
    config = _apply(config, words, flags)
    flat = config.flat
    flat["logdir"] = _expand_logdir(flat["logdir"])
    flat["run.from_checkpoint"] = _expand_home(flat["run.from_checkpoint"])
    return elements.Config(flat)


@functools.cache
def load_defaults() -> elements.Config:
    """The config that nobody has changed yet."""
    return elements.Config(YAML(typ="safe").load(DEFAULTS))


@functools.cache
def load_presets() -> dict[str, dict]:
    """The named sets of options."""
    return YAML(typ="safe").load(PRESETS)


def config_args(config: elements.Config) -> elements.Config:
    """The flat `args` of the role functions: the section `run` and the root keys that they read."""
    return elements.Config({**config.run, **{key: config[key] for key in ROLE_KEYS}})


def agent_settings(config: elements.Config) -> elements.Config:
    """What an agent is built with: the `args` of the role functions, and the sections that concern agents."""
    return elements.Config({**config_args(config), **{name: config[name] for name in ("replay", "dreamer", "jax")}})


def _apply(config: elements.Config, values: Mapping[str, Any], flags: Iterable[str] = ()) -> elements.Config:
    flat = config.flat
    for name, value in _flatten(values):
        key = resolve_key(name, value, flat, flags)
        flat[key] = parse_value(key, value, flat[key])
    return elements.Config(flat)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _expand_logdir(logdir: str) -> str:
    if not logdir:
        raise ConfigError("logdir", logdir, "is empty", "name a directory, such as ~/logdir/{timestamp}")
    if "://" in logdir:
        raise ConfigError("logdir", logdir, "is not on this machine's file system", "name a local directory")
    expanded = _expand_home(logdir.replace("{timestamp}", time.strftime("%Y%m%dT%H%M%S")))
    # Absolute, because roles may change their working directory.
    return str(Path(expanded).absolute())


def _expand_home(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 (pathlib turns the empty path into ".")
