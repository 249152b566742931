"""The config of a run that is over or under way, for the commands that look at it afterwards."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import elements

from dreamfleet.base.hints import nearest
from dreamfleet.errors import ConfigError
from dreamfleet.options.load import load_config, load_defaults
from dreamfleet.options.resume import FILENAME, read_saved

log = logging.getLogger("dreamfleet.options")

# A run may be looked at on another machine than the one that it was trained on.
THIS_MACHINE = {
    "jax.platform": "auto",
    "jax.train_devices": 1,
    "jax.sharding": "replicated",
    "jax.policy_device": 0,
}


def load_saved_config(
    logdir: str | Path, overrides: Mapping[str, Any] | Sequence[str] = (), flags: Sequence[str] = ()
) -> elements.Config:
    """The config of the run in `logdir`, to compute with one device of this machine, with overrides on top.

    Options that this version does not know are refused: the run may mean something by them that it would not get.
    """
    logdir = Path(logdir).expanduser().absolute()
    path = find_config(logdir)
    saved, defaults = read_saved(path), load_defaults().flat
    for key in sorted(saved.keys() - defaults.keys()):
        near = nearest(key, defaults)
        hint = f", or rename it (to {' or '.join(near)}?)" if near else ""
        reason = f"is in {path}, but this version of dreamfleet does not know it"
        raise ConfigError(
            key, saved[key], reason, f"use the version that the run was trained with, or remove it there{hint}"
        )
    if missing := sorted(defaults.keys() - saved.keys()):
        log.warning("%s is of a version without %s: defaults are taken", path, ", ".join(missing))
    base = load_config({**saved, **THIS_MACHINE, "logdir": str(logdir)})
    return load_config(overrides, base=base, flags=flags)


def find_config(logdir: Path) -> Path:
    """The saved config in a log directory; refuses directories that hold no run."""
    if not logdir.is_dir():
        raise ConfigError("logdir", str(logdir), "is not a directory", "name the --logdir of a dreamfleet train")
    path = logdir / FILENAME
    if path.is_file():
        return path
    runs = sorted(found.parent.name for found in logdir.glob(f"*/{FILENAME}"))
    remedy = f"name one of those inside it: {', '.join(runs)}" if runs else "name the --logdir of a dreamfleet train"
    raise ConfigError("logdir", str(logdir), f"holds no run (there is no {FILENAME} in it)", remedy)
