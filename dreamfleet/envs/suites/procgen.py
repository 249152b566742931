"""Procgen's games, with levels that are drawn anew for each episode."""

from typing import Any

import elements
import numpy as np
from procgen import ProcgenGym3Env  # pyright: ignore[reportMissingImports] (no extra can bring it, see the registry)
from procgen.env import ENV_NAMES  # pyright: ignore[reportMissingImports]

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.envs.images import resize
from dreamfleet.envs.suites.names import check_name
from dreamfleet.options.env import ProcgenOptions

OWN_SIZE = 64  # of the game's observation
FORCE_RESET = -1  # an action that ends the episode at once


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, name, ENV_NAMES)


def make_procgen(name: str, seed: int, options: ProcgenOptions) -> "Procgen":
    """A game with the levels that the options allow."""
    check("procgen", name)
    make: Any = ProcgenGym3Env  # the package has no types
    levels = {"num_levels": options.levels, "distribution_mode": options.mode, "rand_seed": seed % 2**31}
    return Procgen(make(1, name, **levels, render_mode=_render_mode(options.size)), options)


def _render_mode(size: int) -> str | None:
    """Other sizes than its own are made from the game's large picture, 512 x 512, rather than from its observation."""
    return None if size == OWN_SIZE else "rgb_array"


class Procgen:
    """A game, which goes to the next level by itself: the last image of an episode is never shown.

    Instead of it the one before is repeated.
    """

    def __init__(self, game, options: ProcgenOptions):
        self._game = game
        self._options = options
        self._is_large = _render_mode(options.size) is not None
        self._image = self._look()
        self._done = True
        self._is_fresh = True  # at the start of a level
        self.obs_space = {"image": elements.Space(np.uint8, (options.size, options.size, 3)), **STEP_SPACES}
        self.act_space = {"action": elements.Space(np.int32, (), 0, game.ac_space.eltype.n), "reset": RESET_SPACE}

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            if not self._is_fresh:
                self._game.act(np.array([FORCE_RESET], np.int32))
            self._image = self._look()
            self._done, self._is_fresh = False, True
            return self._obs(0.0, is_first=True)
        self._game.act(np.array([action["action"]], np.int32))
        reward, _, first = self._game.observe()
        self._done = self._is_fresh = bool(first[0])
        if not self._done:
            self._image = self._look()
        return self._obs(reward[0], is_last=self._done)

    def close(self) -> None:
        self._game.close()

    def _look(self) -> np.ndarray:
        picture = self._game.get_info()[0]["rgb"] if self._is_large else self._game.observe()[1]["rgb"][0]
        return resize(picture, self._options.size, self._options.size, self._options.resize).copy()

    def _obs(self, reward: float, is_first: bool = False, is_last: bool = False) -> dict:
        flags = {"is_first": is_first, "is_last": is_last, "is_terminal": is_last}
        return {"image": self._image, "reward": np.float32(reward), **flags}
