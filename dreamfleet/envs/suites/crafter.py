"""Crafter, with the unlocked achievements as `log/` keys."""

import crafter
import elements
import numpy as np
from crafter import constants

from dreamfleet.base.keys import LOG_PREFIX
from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.envs.suites.names import check_name
from dreamfleet.options.env import CrafterOptions

ACTIONS: list[str] = vars(constants)["actions"]
ACHIEVEMENTS: list[str] = vars(constants)["achievements"]


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, name, ("reward", "noreward"))


def make_crafter(name: str, seed: int, options: CrafterOptions) -> "Crafter":
    """`reward` gives the rewards of the game, `noreward` none."""
    check("crafter", name)
    size = options.size
    return Crafter(crafter.Env(size=(size, size), reward=name == "reward", seed=seed), size)


class Crafter:
    """The game; `log/achievement_NAME` counts how often one was reached in this episode."""

    def __init__(self, env: crafter.Env, size: int):
        self._env = env
        self._done = True
        logs = {f"{LOG_PREFIX}achievement_{name}": elements.Space(np.float32) for name in ACHIEVEMENTS}
        self.obs_space = {"image": elements.Space(np.uint8, (size, size, 3)), **logs, **STEP_SPACES}
        self.act_space = {"action": elements.Space(np.int32, (), 0, len(ACTIONS)), "reset": RESET_SPACE}

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            self._done = False
            return self._obs(self._env.reset(), 0.0, {}, is_first=True)
        image, reward, done, info = self._env.step(int(action["action"]))
        self._done = bool(done)
        is_terminal = info["discount"] == 0
        return self._obs(image, reward, info["achievements"], is_last=self._done, is_terminal=is_terminal)

    def close(self) -> None:
        pass

    def _obs(self, image, reward, counts, is_first=False, is_last=False, is_terminal=False) -> dict:
        return {
            "image": image,
            **{f"{LOG_PREFIX}achievement_{name}": np.float32(counts.get(name, 0)) for name in ACHIEVEMENTS},
            "reward": np.float32(reward),
            "is_first": is_first,
            "is_last": is_last,
            "is_terminal": is_terminal,
        }
