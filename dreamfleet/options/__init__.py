"""The options of a run: a typed field for each, of which command line, help, checks, saved files and docs are made."""

from dreamfleet.options.args import Args, key_file, read_args
from dreamfleet.options.check import check_options, check_role, count_most_envs
from dreamfleet.options.dreamer import DreamerOptions
from dreamfleet.options.env import EnvOptions
from dreamfleet.options.fields import flatten
from dreamfleet.options.help import option_help
from dreamfleet.options.jax import JaxOptions
from dreamfleet.options.load import change_options, load_options, place_replica
from dreamfleet.options.logger import LoggerOptions
from dreamfleet.options.ray import RayOptions
from dreamfleet.options.replay import ReplayOptions
from dreamfleet.options.root import AgentOptions, Options, RoleOptions, agent_options, role_options, shared_options
from dreamfleet.options.run import SERVERS, RunOptions
from dreamfleet.options.saved import (
    check_resume,
    format_options,
    is_saved,
    load_saved_options,
    refuse_foreign,
    save_options,
)

__all__ = [
    "SERVERS",
    "AgentOptions",
    "Args",
    "DreamerOptions",
    "EnvOptions",
    "JaxOptions",
    "LoggerOptions",
    "Options",
    "RayOptions",
    "ReplayOptions",
    "RoleOptions",
    "RunOptions",
    "agent_options",
    "change_options",
    "check_options",
    "check_resume",
    "check_role",
    "count_most_envs",
    "flatten",
    "format_options",
    "is_saved",
    "key_file",
    "load_options",
    "load_saved_options",
    "option_help",
    "place_replica",
    "read_args",
    "refuse_foreign",
    "role_options",
    "save_options",
    "shared_options",
]
