"""The settings of a run: YAML defaults and presets, strict loading, checks before a start, saving and resuming."""

from dreamfleet.options.check import check_config
from dreamfleet.options.help import option_help
from dreamfleet.options.load import agent_settings, config_args, load_config
from dreamfleet.options.resume import check_resume, forget_config, format_config, is_saved, save_config
from dreamfleet.options.saved import load_saved_config

__all__ = [
    "agent_settings",
    "check_config",
    "check_resume",
    "config_args",
    "forget_config",
    "format_config",
    "is_saved",
    "load_config",
    "load_saved_config",
    "option_help",
    "save_config",
]
