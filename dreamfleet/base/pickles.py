"""How what a user wrote travels to processes that cannot import it."""

import sys
from typing import Any

import cloudpickle

SPAWNED_MAIN = "__mp_main__"  # what the user's script is called in processes that multiprocessing spawns from it


def dumps(value: Any) -> bytes:
    """The value for a child process; what is defined in the user's script or notebook goes along as a whole."""
    if script := sys.modules.get(SPAWNED_MAIN):
        cloudpickle.register_pickle_by_value(script)
    return cloudpickle.dumps(value)
