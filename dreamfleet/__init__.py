"""Trains world-model agents with one process per role. `dreamfleet.train` starts a run from Python.

Imports nothing by itself, since every role's process passes through here.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dreamfleet.api import Run, train

__all__ = ["Run", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dreamfleet' has no attribute {name!r}")
    from dreamfleet import api

    return getattr(api, name)
