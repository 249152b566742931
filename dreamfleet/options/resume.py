"""The config kept in a log directory: written when a run starts, compared when it is resumed."""

import io
import logging
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import elements
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dreamfleet.base.files import replace_file
from dreamfleet.errors import ConfigError
from dreamfleet.options.load import load_defaults

log = logging.getLogger("dreamfleet.options")

FILENAME = "config.yaml"

# What the data and the parameters of a run do not depend on.
CHANGEABLE = (
    "logdir",
    "run.steps",
    "run.duration",
    "run.envs",
    "run.eval_envs",
    "run.envs_per_worker",
    "run.agent_process",
    "run.remote_*",
    "run.transport",
    "run.*_addr",
    "run.actor_*",
    "run.backlog",
    "run.*_timeout",
    "run.*_every",
    "run.report_batches",
    "run.prefetch",
    "run.keep",
    "run.leg",
    "run.restart",
    "run.max_restarts",
    "run.log_full",
    "run.usage.*",
    "logger.*",
    "replay.sync_every",
    "dreamer.grad_norms",
    "jax.*",
)


def save_config(config: elements.Config, logdir: str | Path) -> Path:
    """Writes `logdir/config.yaml` atomically and returns its path."""
    path = Path(logdir) / FILENAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, format_config(config))
    except OSError as error:
        reason = f"cannot be written to ({error.strerror}: {error.filename})"
        raise ConfigError("logdir", str(logdir), reason, "choose a directory that you may write to") from None
    return path


def is_saved(logdir: str | Path) -> bool:
    """Whether a log directory holds the config of a run."""
    return (Path(logdir) / FILENAME).exists()


def forget_config(logdir: str | Path) -> None:
    """Removes what `save_config` wrote, so that the directory can be used with any settings."""
    (Path(logdir) / FILENAME).unlink(missing_ok=True)


def check_resume(config: elements.Config, logdir: str | Path) -> bool:
    """Raises ConfigError if `logdir` holds a run that `config` cannot go on with; returns whether it holds one."""
    path = Path(logdir) / FILENAME
    if not is_saved(logdir):
        return False
    saved = _with_today_keys(read_saved(path), path)
    changes = [
        f"{key}: {saved[key]!r} -> {value!r}"
        for key, value in config.flat.items()
        if saved.get(key, value) != value and not any(fnmatchcase(key, pattern) for pattern in CHANGEABLE)
    ]
    if changes:
        reason = f"holds a run with other settings ({', '.join(changes)})"
        raise ConfigError("logdir", str(logdir), reason, "set these back to resume it, or use another logdir")
    return True


def format_config(config: elements.Config) -> str:
    """The config as YAML, in the order of the defaults."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = sys.maxsize  # one line for each option, however long its value
    with io.StringIO() as stream:
        yaml.dump(_plain(config), stream)
        return stream.getvalue()


def read_saved(path: Path) -> dict[str, Any]:
    """The options in a saved config, by their flat keys, whether or not this version knows them."""
    try:
        return elements.Config(YAML(typ="safe").load(path)).flat
    except (OSError, UnicodeDecodeError, YAMLError, TypeError, ValueError, AssertionError, AttributeError) as error:
        reason = f"holds a {FILENAME} that cannot be read ({' '.join(str(error).split())})"
        remedy = f"repair or delete {path}, or use another logdir"
        raise ConfigError("logdir", str(path.parent), reason, remedy) from None


def _with_today_keys(saved: dict[str, Any], path: Path) -> dict[str, Any]:
    """Fills keys that an older version did not have with their defaults, and drops those that no longer exist."""
    defaults = load_defaults().flat
    for key in saved.keys() - defaults.keys():
        log.warning("%s: the option %s=%r is unknown to this version and ignored", path, key, saved[key])
    for key in defaults.keys() - saved.keys():
        log.warning("%s: has no option %s, so its default %r is taken", path, key, defaults[key])
    return {key: saved.get(key, default) for key, default in defaults.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
