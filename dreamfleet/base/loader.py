"""Objects that a user names as `module:attr`."""

import functools
import importlib
from typing import Any

from dreamfleet.errors import ConfigError


def load_attribute(name: str) -> Any:
    """What `module:attr` names; the attribute may be dotted. Raises whatever the import raises."""
    module, _, attribute = name.partition(":")
    if not module or module.startswith("."):
        raise ImportError(f"{module!r} is not the full name of a module")
    return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))


def load_option(key: str, name: str, remedy: str) -> Any:
    """The same for the value of an option: what cannot be imported is a ConfigError."""
    try:
        return load_attribute(name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(key, name, f"cannot be imported ({error})", remedy) from error
