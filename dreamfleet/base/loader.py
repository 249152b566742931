"""Objects that a user names as `module:attr`."""

import functools
import importlib
import traceback
from typing import Any

from dreamfleet.errors import ConfigError


def load_attribute(name: str) -> Any:
    """What `module:attr` names; the attribute may be dotted. Raises whatever the import raises."""
    module, _, attribute = name.partition(":")
    if not module or module.startswith("."):
        raise ImportError(f"{module!r} is not the full name of a module")
    return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))


def load_option(key: str, name: str, remedy: str) -> Any:
    """The same for an option: a name that leads nowhere is a ConfigError, and what the module raises is its own."""
    try:
        return load_attribute(name)
    except (ImportError, AttributeError) as error:
        if _is_raised_inside(error):
            raise
        raise ConfigError(key, name, f"cannot be imported ({error})", remedy) from error


def _is_raised_inside(error: Exception) -> bool:
    """Whether an error comes from the code of the module that was imported, rather than from looking for it."""
    machinery = (__file__, importlib.__file__)
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename not in machinery and "importlib._bootstrap" not in frame.filename for frame in frames)
