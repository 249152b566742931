"""The edge where scripts written for the reference pass `args`: any mapping, turned into typed options."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dreamfleet.base.hints import nearest
from dreamfleet.base.logdir import KEY_FILE, KEY_VARIABLE
from dreamfleet.errors import ConfigError
from dreamfleet.options.env import EnvOptions
from dreamfleet.options.fields import build, find_options
from dreamfleet.options.load import expand_logdir, flat_items
from dreamfleet.options.root import Options, RoleOptions
from dreamfleet.options.values import find_option, parse_value

log = logging.getLogger("dreamfleet.options")

Args = RoleOptions | Mapping[str, Any]

TYPO = 0.85  # similarity from which an unknown key is taken for a misspelt one


def read_args(args: Args) -> RoleOptions:
    """The options of a role from `args` (an `elements.Config`, a dict), with defaults for what is missing.

    Keys that are not ours are left alone, as scripts have some of their own; a warning names those that look misspelt.
    """
    if isinstance(args, RoleOptions):
        return args
    known = find_options(RoleOptions)
    flat: dict[str, Any] = {"logdir": RoleOptions.logdir}
    for key, value in flat_items(args):
        if key in known:
            flat[key] = parse_value(known[key], value)
        elif near := nearest(key, known, TYPO):
            log.warning("args.%s is not an option and ignored; did you mean %s?", key, near[0])
    flat["logdir"] = expand_logdir(flat["logdir"])
    return check_lengths(build(RoleOptions, flat))


def read_env_options(given: Mapping[str, Mapping[str, Any]]) -> EnvOptions:
    """The section `env` from a dict by suite."""
    known = find_options(Options)
    flat = {}
    for name, value in flat_items(given, "env."):
        option = find_option(name, value, known)
        flat[option.key.removeprefix("env.")] = parse_value(option, value)
    return build(EnvOptions, flat)


def check_lengths(options: RoleOptions) -> RoleOptions:
    """Refuses reports that do not fit into a sampled sequence."""
    report = options.consec_report * options.report_length + options.replay_context
    if report > options.sequence_length:
        raise ConfigError(
            "report_length",
            options.report_length,
            f"needs {report} steps, but a sampled sequence has {options.sequence_length}",
            "lower report_length or consec_report, or raise batch_length or consec_train",
        )
    return options


def key_file(options: RoleOptions) -> str:
    """Where the run's key is: `key_file`, else DREAMFLEET_KEY_FILE, else `run.key` in the log directory."""
    given = options.key_file or os.environ.get(KEY_VARIABLE)
    return str(Path(given or Path(options.logdir) / KEY_FILE).expanduser().absolute())
