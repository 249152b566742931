"""Visual Pin Pad: step on all pads of a room in the one right order, which only the rare reward tells.

As described in "Deep Hierarchical Planning from Pixels" (Hafner et al., 2022); the rooms are our own.
"""

import colorsys
from collections import deque

import elements
import numpy as np

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.envs.suites.names import check_name
from dreamfleet.options.env import PinpadOptions

PADS = {"three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
WIDTH, HEIGHT = 16, 14  # of the room with its walls; what was stepped on is shown in two rows below
LEFT, TOP, RIGHT, BOTTOM = 2, 2, WIDTH - 3, HEIGHT - 3  # the rectangle that the middles of the pads lie on
MOVES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))  # stay, down, up, right, left
REWARD = 10.0
CELEBRATION = 10  # steps that the room is coloured after a success, before the next attempt

WALL, FLOOR, CELEBRATED, PLAYER = (112, 112, 112), (240, 240, 240), (200, 244, 200), (24, 24, 24)
FADED = 0.75  # towards the floor: pads that nobody stands on


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, name, PADS)


def make_pinpad(name: str, seed: int, options: PinpadOptions) -> "PinPad":
    """A room by its number of pads, as a word."""
    check("pinpad", name)
    return PinPad(PADS[name], seed, options)


class PinPad:
    """The room; the image has all that there is to know, but for the right order."""

    def __init__(self, pads: int, seed: int, options: PinpadOptions):
        self._length = options.length
        self._rng = np.random.default_rng(seed)
        self._pad_at = place_pads(pads)
        self._target = find_order(pads)
        self._colors = [_hue(number / pads) for number in range(pads)]
        self._cell = options.size // WIDTH
        self._steps_on: deque[int] = deque(maxlen=pads)  # the last pads, each as long as no other came
        self._player = (0, 0)
        self._count = self._celebrating = 0
        self._done = True
        self.obs_space = {"image": elements.Space(np.uint8, (options.size, options.size, 3)), **STEP_SPACES}
        self.act_space = {"action": elements.Space(np.int32, (), 0, len(MOVES)), "reset": RESET_SPACE}

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            self._count, self._done = 0, False
            self._begin()
            return self._obs(0.0, is_first=True)
        if self._celebrating:
            self._celebrating -= 1
            if not self._celebrating:
                self._begin()
        self._move(*MOVES[action["action"]])
        is_solved = not self._celebrating and tuple(self._steps_on) == self._target
        if is_solved:
            self._celebrating = CELEBRATION
        self._count += 1
        self._done = self._count >= self._length
        return self._obs(REWARD if is_solved else 0.0, is_last=self._done)

    def close(self) -> None:
        pass

    def _begin(self) -> None:
        """Puts the player anywhere in the room, with nothing stepped on yet."""
        self._celebrating = 0
        self._steps_on.clear()
        self._player = int(self._rng.integers(1, WIDTH - 1)), int(self._rng.integers(1, HEIGHT - 1))

    def _move(self, right: int, down: int) -> None:
        x, y = self._player
        self._player = min(max(x + right, 1), WIDTH - 2), min(max(y + down, 1), HEIGHT - 2)
        pad = self._pad_at.get(self._player)
        if pad is not None and (not self._steps_on or self._steps_on[-1] != pad):
            self._steps_on.append(pad)

    def _obs(self, reward: float, is_first: bool = False, is_last: bool = False) -> dict:
        # There is no end but that of the time.
        flags = {"is_first": is_first, "is_last": is_last, "is_terminal": False}
        return {"image": self._draw(), "reward": np.float32(reward), **flags}

    def _draw(self) -> np.ndarray:
        grid = np.empty((WIDTH, WIDTH, 3), np.uint8)  # rows first
        grid[:] = WALL
        floor = CELEBRATED if self._celebrating else FLOOR
        grid[1 : HEIGHT - 1, 1 : WIDTH - 1] = floor
        current = self._pad_at.get(self._player)
        for (x, y), pad in self._pad_at.items():
            share = 0.0 if pad == current else FADED
            grid[y, x] = (1 - share) * np.array(self._colors[pad]) + share * np.array(floor)
        grid[self._player[1], self._player[0]] = PLAYER
        for i, pad in enumerate(self._steps_on):
            grid[HEIGHT, 2 * i] = self._colors[pad]
        return grid.repeat(self._cell, 0).repeat(self._cell, 1)


def place_pads(count: int) -> dict[tuple[int, int], int]:
    """The pad of each cell that has one: squares of 3 x 3, evenly spread along the walls, numbered clockwise."""
    wide, high = RIGHT - LEFT, BOTTOM - TOP
    cells = {}
    for pad in range(count):
        way = pad * 2 * (wide + high) / count  # along the four sides of the rectangle
        side = np.interp(way, [0, wide, wide + high, 2 * wide + high, 2 * (wide + high)], np.arange(5))
        x = round(np.interp(side, np.arange(5), [LEFT, RIGHT, RIGHT, LEFT, LEFT]))
        y = round(np.interp(side, np.arange(5), [TOP, TOP, BOTTOM, BOTTOM, TOP]))
        cells |= {(x + i, y + j): pad for i in (-1, 0, 1) for j in (-1, 0, 1)}
    return cells


def find_order(count: int) -> tuple[int, ...]:
    """The right order, from one side of the room to the other and back: neighbours do not follow each other."""
    half = -(-count // 2)
    return tuple(pad for i in range(half) for pad in (i, i + half) if pad < count)


def _hue(hue: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.95, 0.9)
    return round(255 * red), round(255 * green), round(255 * blue)
