"""Builds the options of a run from defaults, presets and overrides; called by whoever starts a run."""

import functools
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ruamel.yaml import YAML

from dreamfleet.base.hints import choose_from
from dreamfleet.base.logdir import KEY_FILE, KEY_VARIABLE
from dreamfleet.errors import ConfigError
from dreamfleet.options.fields import build, find_options, flatten
from dreamfleet.options.root import Options
from dreamfleet.options.values import find_option, parse_value, parse_words

DEFAULT_TASK = "default_task"  # of a preset: counts where nothing else names a task
PRESETS = Path(__file__).parent / "presets.yaml"

O = TypeVar("O", bound=Options)  # noqa: E741


def load_options(
    overrides: Mapping[str, Any] | Sequence[str] = (), presets: Iterable[str] = (), flags: Iterable[str] = ()
) -> Options:
    """Layers presets, in order, and then overrides (a mapping or command line words) on the defaults.

    `flags` are options of the command rather than of the run, suggested when a key is unknown.
    """
    return change_options(Options(), overrides, presets, flags)


def change_options(
    base: O,
    overrides: Mapping[str, Any] | Sequence[str],
    presets: Iterable[str] = (),
    flags: Iterable[str] = (),
) -> O:
    """The same as `load_options` on other options than the defaults."""
    known, flat = find_options(type(base)), flatten(base)
    is_mapping = isinstance(overrides, Mapping)
    named = [load_preset(name) for name in presets]
    fallback = max((preset.pop(DEFAULT_TASK, "") for preset in named), default="")
    for layer in [*named, overrides if is_mapping else parse_words(overrides)]:
        for name, value in flat_items(layer):
            option = find_option(name, value, known, flags, "" if is_mapping else "--")
            flat[option.key] = parse_value(option, value)
    flat["task"] = flat["task"] or fallback
    flat["logdir"] = expand_logdir(flat["logdir"])
    flat["run.from_checkpoint"] = _expand_home(flat["run.from_checkpoint"])
    if flat["replay.mix"]:
        flat["replay.mix"] = str(Path(flat["replay.mix"]).expanduser().absolute())
    return build(type(base), flat)


def place_replica(options: O) -> O:
    """The options of a replica other than the first: its log directory is inside that of the run, which has the key."""
    run, logdir = options.run, Path(options.logdir)
    if not run.replica:
        return options
    if run.key_file and not Path(run.key_file).expanduser().exists():
        remedy = "copy that of replica 0 (run.key in its log directory)"
        raise ConfigError("run.key_file", run.key_file, "does not exist", remedy)
    key = run.key_file or os.environ.get(KEY_VARIABLE) or str(logdir / KEY_FILE)
    return change_options(options, {"logdir": str(logdir / f"replica-{run.replica}"), "run.key_file": key})


def load_preset(name: str) -> dict[str, Any]:
    """The options of a preset."""
    known = load_presets()
    if name not in known:
        raise ConfigError("preset", name, "is unknown", choose_from(name, known))
    return dict(known[name])


@functools.cache
def load_presets() -> dict[str, dict[str, Any]]:
    """The named sets of options."""
    return YAML(typ="safe").load(PRESETS)


def expand_logdir(logdir: str) -> str:
    """The absolute path, because roles may change their working directory, with `~` and `{timestamp}` filled in."""
    if not logdir:
        raise ConfigError("logdir", logdir, "is empty", "name a directory, such as ~/logdir/{timestamp}")
    if "://" in logdir:
        raise ConfigError("logdir", logdir, "is not on this machine's file system", "name a local directory")
    expanded = _expand_home(logdir.replace("{timestamp}", time.strftime("%Y%m%dT%H%M%S")))
    return str(Path(expanded).absolute())


def flat_items(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_items(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _expand_home(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 (pathlib turns the empty path into ".")
