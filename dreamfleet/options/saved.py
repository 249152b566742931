"""The options that a run keeps in its log directory: written at its start, compared when it resumes, read later."""

import dataclasses
import functools
import io
import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dreamfleet.base.files import replace_file
from dreamfleet.base.hints import did_you_mean
from dreamfleet.errors import ConfigError
from dreamfleet.options.fields import find_options, flatten, show_value
from dreamfleet.options.load import change_options, flat_items, load_options
from dreamfleet.options.root import Options
from dreamfleet.options.tasks import task_section

log = logging.getLogger("dreamfleet.options")

FILENAME = "config.yaml"
_OURS = {"task", "logdir", "run"}  # sections and options that the file of a run has, of whichever version


def save_options(options: Options) -> Path:
    """Writes `LOGDIR/config.yaml` atomically and returns its path."""
    path = Path(options.logdir) / FILENAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, format_options(options))
    except OSError as error:
        reason = f"cannot be written to ({error.strerror}: {error.filename})"
        raise ConfigError("logdir", options.logdir, reason, "choose a writable directory") from None
    return path


def is_saved(logdir: str | Path) -> bool:
    """Whether a log directory holds the options of a run."""
    return (Path(logdir) / FILENAME).exists()


def format_options(options: Options) -> str:
    """The options as YAML, in the order of their declaration, one line for each however long its value."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = sys.maxsize
    with io.StringIO() as stream:
        yaml.dump(_plain(dataclasses.asdict(options)), stream)
        return stream.getvalue()


def read_saved(path: Path) -> dict[str, Any]:
    """The values in a saved file by dotted key, whether or not this version knows them."""
    try:
        values = YAML(typ="safe").load(path)
        if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
            raise ValueError("it is not a mapping of options")
        flat = {key: tuple(value) if isinstance(value, list) else value for key, value in flat_items(values)}
        if empty := [key for key, value in flat.items() if value in ((), None)]:
            raise ValueError(f"{empty[0]} has no value")
        return flat
    except (OSError, UnicodeDecodeError, YAMLError, TypeError, ValueError) as error:
        reason = f"holds a {FILENAME} that cannot be read ({' '.join(str(error).split())})"
        remedy = f"repair or delete {path}, or use another logdir"
        raise ConfigError("logdir", str(path.parent), reason, remedy) from None


def refuse_foreign(logdir: str | Path) -> None:
    """Raises ConfigError for a directory of other things, where a new run would replace files or litter."""
    path, remedy = Path(logdir).expanduser(), "name a directory for the run, such as ~/logdir/NAME"
    if path.resolve() in (_find_home(), Path("/")):
        raise ConfigError("logdir", str(logdir), "is not a place for the files of a run", remedy)
    if is_saved(path) and not _OURS.issubset(_read_keys(path / FILENAME)):
        raise ConfigError("logdir", str(logdir), f"holds a {FILENAME} that is not of a run", remedy)


def _find_home() -> Path | None:
    try:
        return Path.home().resolve()
    except RuntimeError:  # a user without one, as in containers
        return None


def _read_keys(path: Path) -> set[str]:
    try:
        values = YAML(typ="safe").load(path)
    except (OSError, UnicodeDecodeError, YAMLError, ValueError):
        return set()
    return set(values) if isinstance(values, Mapping) else set()


def fixed_values(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that the data and the parameters of a run depend on."""
    known = find_options(Options)
    return {key: value for key, value in flat.items() if key not in known or not known[key].rule.can_change}


def check_resume(options: Options) -> bool:
    """Raises ConfigError if the log directory holds a run of other options; returns whether it holds one."""
    logdir = options.logdir
    if not is_saved(logdir):
        return False
    saved = _read_as_of_today(Path(logdir) / FILENAME, type(options))
    given = flatten(options)
    changed = [key for key in fixed_values(given) if saved[key] != given[key] and _counts(key, saved, given)]
    if changed:
        changes = ", ".join(f"{key}: {saved[key]!r} -> {given[key]!r}" for key in changed)
        words = " ".join(f"--{key} {shlex.quote(show_value(saved[key]))}" for key in changed)
        remedy = f"set these back to resume it ({words}), or use another logdir"
        raise ConfigError("logdir", logdir, f"holds a run with other options ({changes})", remedy)
    return True


def _counts(key: str, *runs: Mapping[str, Any]) -> bool:
    """Whether an option concerns any of the runs: not those of other suites, nor of what is not used."""
    if key.startswith("env."):
        return any(key.startswith(f"env.{task_section(run['task'])}.") for run in runs)
    if key.startswith("replay.priority_"):
        return any(run["replay.priority"] for run in runs)
    if key == "replay.mix_share":
        return any(run["replay.mix"] for run in runs)
    return True


def load_saved_options(
    logdir: str | Path, overrides: Mapping[str, Any] | Sequence[str] = (), flags: Sequence[str] = ()
) -> Options:
    """The options of the run in `logdir`, with overrides on top, to compute on one device of this machine."""
    logdir = Path(logdir).expanduser().absolute()
    base = load_options({**_read_as_of_today(find_saved(logdir), Options), "logdir": str(logdir)})
    here = dataclasses.replace(base.jax, platform="auto", train_devices=1, sharding="replicated", policy_device=0)
    return change_options(dataclasses.replace(base, jax=here), overrides, flags=flags)


def find_saved(logdir: Path) -> Path:
    """The saved options in a log directory; refuses directories that hold no run."""
    if not logdir.is_dir():
        raise ConfigError("logdir", str(logdir), "is not a directory", "name the --logdir of a dreamfleet train")
    path = logdir / FILENAME
    if path.is_file():
        return path
    runs = sorted(found.parent.name for found in logdir.glob(f"*/{FILENAME}"))
    remedy = f"name one of those inside it: {', '.join(runs)}" if runs else "name the --logdir of a dreamfleet train"
    raise ConfigError("logdir", str(logdir), f"holds no run (there is no {FILENAME} in it)", remedy)


def _read_as_of_today(path: Path, options: type[Options]) -> dict[str, Any]:
    """The saved values for the options of this version: defaults for those that are missing, and no others.

    What another version has saved is never refused for an option that came or went, but it is said.
    """
    saved, known = read_saved(path), find_options(options)
    if any(key.startswith("agent.") for key in saved):  # ours is one name
        reason, logdir = "holds the options of a run of danijar/dreamerv3", str(path.parent)
        remedy = f"take over what can be: dreamfleet import-reference {logdir} NEW_LOGDIR; or use another logdir"
        raise ConfigError("logdir", logdir, reason, remedy)
    for key in sorted(saved.keys() - known.keys()):
        hint = did_you_mean(key, known, "the run may have been trained differently")
        _warn_once(f"{path}: this version does not know the option {key}={saved[key]!r} and ignores it; {hint}")
    if missing := [key for key in known if key not in saved]:
        _warn_once(f"{path}: saved by a version without {', '.join(missing)}; using the defaults")
    return {key: saved.get(key, option.default_before()) for key, option in known.items()}


@functools.cache
def _warn_once(text: str) -> None:
    """Logs a warning, however often a command reads the file."""
    log.warning("%s", text)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
