"""Objects that a user names as `module:attr`."""

import functools
import importlib
import traceback
from typing import Any

from dreamfleet.base.hints import nearest
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
        raise ConfigError(key, name, f"cannot be imported ({error})", _nearest(name, error) or remedy) from error


def _nearest(name: str, error: Exception) -> str:
    """The question whether another attribute was meant, if one has a similar name."""
    if not isinstance(error, AttributeError) or not error.name:
        return ""
    near = nearest(error.name, [other for other in dir(error.obj) if not other.startswith("_")])
    return f"did you mean {' or '.join(name.removesuffix(error.name) + other for other in near)}?" if near else ""


def _is_raised_inside(error: Exception) -> bool:
    """Whether an error comes from the code of the module that was imported, rather than from looking for it."""
    machinery = (__file__, importlib.__file__)
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename not in machinery and "importlib._bootstrap" not in frame.filename for frame in frames)
