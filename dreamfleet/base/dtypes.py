"""Data types by name, as they travel between processes and stand in files."""

import importlib

import numpy as np

_NATIVE = frozenset(np.dtype(code).name for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?")


def find_dtype(name: str) -> np.dtype:
    """The type of numbers or bool of this name; raises ValueError for any other."""
    return np.dtype(name) if name in _NATIVE else find_extension_dtype(name)


def find_extension_dtype(name: str) -> np.dtype:
    """A type such as bfloat16, which NumPy knows only where the `ml_dtypes` package is installed, as with JAX."""
    try:
        dtype = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except (ImportError, AttributeError, TypeError, ValueError):
        raise ValueError(f"data type {name} is unknown, even to ml_dtypes (if that is installed)") from None
    if dtype.name != name:  # some other class of that package
        raise ValueError(f"{name} is not a data type of numbers")
    return dtype
