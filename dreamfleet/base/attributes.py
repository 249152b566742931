"""Optional attributes of objects that others wrote."""

from typing import Any


def find(owner: Any, name: str, default: Any = None) -> Any:
    """An attribute that an object may have, else the default.

    Environment wrappers written for danijar/dreamerv3 raise ValueError instead of AttributeError for what they do not
    have, which `hasattr` and `isinstance` with a protocol let pass.
    """
    try:
        return getattr(owner, name, default)
    except ValueError:
        if hasattr(type(owner), name):  # it is there, and has failed
            raise
        return default
