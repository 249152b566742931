"""Packages that are not installed by default."""

import importlib.util
from collections.abc import Iterable

from dreamfleet.errors import ConfigError


def check_installed(key: str, value: object, packages: Iterable[str], remedy: str) -> None:
    """Raises ConfigError if a package that a setting needs is not installed; imports nothing."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(key, value, f"needs the package {package}, which is not installed", remedy)
