"""Numbers in the `info` of Gymnasium environments as `log/` keys; used by both Gymnasium adapters."""

import functools
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import elements
import numpy as np

from dreamfleet.base.keys import LOG_PREFIX

log = logging.getLogger("dreamfleet.envs")


class InfoLogs:
    """Picks the named numbers from every `info`; one that is missing in a step is 0 there.

    Without `names` nothing is logged; with them, other numbers that turn up are mentioned once. `lead` is the shape in
    front of every number: `(K,)` when K environments are stepped at once.
    """

    def __init__(self, names: Iterable[str] | None, lead: tuple[int, ...] = ()):
        self._is_on = names is not None
        self._names = tuple(names or ())
        self._lead = lead
        self.obs_space = {f"{LOG_PREFIX}{name}": elements.Space(np.float32) for name in self._names}

    def read(self, info: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The `log/` entries of an observation."""
        if not self._is_on:
            return {}
        found = find_numbers(info, self._lead)
        for name in found.keys() - set(self._names):
            _say_unlogged(name)
        missing = np.zeros(self._lead, np.float32)
        return {f"{LOG_PREFIX}{name}": found.get(name, missing) for name in self._names}


def find_numbers(info: Mapping[str, Any], lead: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    """All numbers in an `info`, those of nested ones with names joined by `/`."""
    numbers = {}
    for key, value in info.items():
        if lead and key.startswith("_") and key[1:] in info:
            continue  # tells which of several environments have the entry; the others have 0 in it
        if isinstance(value, Mapping):
            numbers.update({f"{key}/{name}": number for name, number in find_numbers(value, lead).items()})
        elif isinstance(value, (bool, int, float, np.generic, np.ndarray)):
            array = np.asarray(value)
            if array.dtype.kind in "biuf" and array.shape == lead:
                numbers[str(key)] = array.astype(np.float32)
    return numbers


@functools.cache  # once for each name
def _say_unlogged(name: str) -> None:
    log.warning("info has '%s', which is not logged; name all that should be, as in --env.gym.info %s", name, name)
