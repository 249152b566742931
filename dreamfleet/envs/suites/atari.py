"""Atari games through the Arcade Learning Environment, by the protocols of the field."""

import elements
import numpy as np
from ale_py import ALEInterface, LoggerMode, roms

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.envs.images import resize
from dreamfleet.envs.suites.names import check_name
from dreamfleet.options.env import Atari100kOptions, AtariOptions

STICKINESS = 0.25
POOLED_FRAMES = 2  # sprites that flicker are shown in one of two frames


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, name, roms.get_all_rom_ids())


def make_atari(name: str, seed: int, options: AtariOptions) -> "Atari":
    """A game with sticky actions, as used with 200M frames."""
    check("atari", name)
    return Atari(name, seed, options)


def make_atari100k(name: str, seed: int, options: Atari100kOptions) -> "Atari":
    """A game in colour and without sticky actions, as used with 400k frames."""
    check("atari100k", name)
    return Atari(name, seed, options)


class Atari:
    """A game whose frames are skipped, pooled and resized.

    `lives` says what losing one means: nothing (`unused`), a terminal state within the episode (`discount`), or the end
    of the episode, after which the game goes on (`reset`). `length` is in frames: half an hour has 108,000.
    """

    def __init__(self, name: str, seed: int, options: AtariOptions):
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self._ale = ALEInterface()
        self._ale.setInt("random_seed", seed % 2**31)
        self._ale.setFloat("repeat_action_probability", STICKINESS if options.sticky else 0.0)
        self._ale.loadROM(str(roms.get_rom_path(name)))
        self._actions = self._ale.getLegalActionSet() if options.actions == "full" else self._ale.getMinimalActionSet()
        self._options = options
        self._rng = np.random.default_rng(seed)
        self._frames = 0  # of this episode
        self._lives = 0
        self._done = True
        self.obs_space = {
            "image": elements.Space(np.uint8, (options.size, options.size, 1 if options.gray else 3)),
            **STEP_SPACES,
        }
        self.act_space = {"action": elements.Space(np.int32, (), 0, len(self._actions)), "reset": RESET_SPACE}

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            self._start()
            return self._obs([self._screen()], 0.0, is_first=True)
        reward, screens, is_over = self._advance(self._actions[action["action"]])
        is_life_lost = self._ale.lives() < self._lives
        self._lives = self._ale.lives()
        is_terminal = is_over or (is_life_lost and self._options.lives != "unused")
        is_cut = is_life_lost and self._options.lives == "reset"
        self._done = is_over or is_cut or self._frames >= self._options.length
        return self._obs(screens, reward, is_last=self._done, is_terminal=is_terminal)

    def render(self) -> np.ndarray:
        return self._ale.getScreenRGB()

    def close(self) -> None:
        pass

    def _start(self) -> None:
        goes_on = self._options.lives == "reset" and self._frames < self._options.length and self._lives > 0
        if goes_on and not self._ale.game_over():
            self._ale.act(0)  # the game goes on with the next life
        else:
            self._ale.reset_game()
            self._frames = 0
            for _ in range(self._rng.integers(self._options.noops + 1)):
                self._ale.act(0)
                if self._ale.game_over():
                    self._ale.reset_game()
        self._lives = self._ale.lives()
        self._done = False

    def _advance(self, action: int) -> tuple[float, list[np.ndarray], bool]:
        """Repeats an action; returns its reward, the last screens, and whether the game is over."""
        reward, screens, is_over = 0.0, [], False
        for frame in range(self._options.repeat):
            reward += self._ale.act(action)
            self._frames += 1
            is_over = self._ale.game_over()
            if is_over or frame >= self._options.repeat - POOLED_FRAMES:
                screens.append(self._screen())
            if is_over:
                break
        return reward, screens, is_over

    def _screen(self) -> np.ndarray:
        return self._ale.getScreenGrayscale()[..., None] if self._options.gray else self._ale.getScreenRGB()

    def _obs(self, screens, reward, is_first=False, is_last=False, is_terminal=False) -> dict:
        # Only screens of this very step, so that nothing is left of the step or the episode before.
        return {
            "image": resize(np.max(screens, 0), self._options.size, self._options.size, self._options.resize),
            "reward": np.float32(reward),
            "is_first": is_first,
            "is_last": is_last,
            "is_terminal": is_terminal,
        }
