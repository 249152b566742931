"""Packages that only some commands need, and that come with an extra."""

import importlib
from typing import Any

from dreamfleet.base.extras import install_command
from dreamfleet.errors import ConfigError


def load_extra(module: str, extra: str, command: str) -> Any:
    """Imports a module; says which extra brings it if that fails."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        reason = f"needs the package {module}, which cannot be imported ({error})"
        raise ConfigError("command", command, reason, f"run {install_command(extra)}") from error
