"""LangRoom: a room with four objects, and questions about their colours that are answered by saying the word in time.

As described in "Learning to Model the World with Language" (Lin et al., 2023); the pictures are our own.
"""

from collections import deque
from collections.abc import Callable

import elements
import numpy as np

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.envs.suites.names import check_name
from dreamfleet.options.env import LangroomOptions

SILENCE = ""
COLORS = {"red": (214, 48, 48), "green": (56, 166, 74), "blue": (52, 92, 214), "yellow": (236, 200, 48)}
OBJECTS = {"ball": (1, 1), "rug": (7, 1), "table": (1, 7), "vase": (7, 7)}  # where they are
WORDS = (SILENCE, *COLORS, *OBJECTS, "what", "color", "is", "the", "?", "it")
MEANINGLESS = "..."  # what all further tokens say
SIDE = 9  # of the room, in cells, with its walls
MOVES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))  # stay, down, up, right, left
PAUSE = 10  # steps between a question and its answer, to go and look

WALL, FLOOR, DARK, PLAYER = (96, 84, 76), (226, 216, 200), (20, 20, 20), (250, 250, 250)


def _rate_answer(said: str, heard: str) -> float:
    if said == SILENCE:
        return 0.0
    if heard not in COLORS:
        return -0.01
    return 1.0 if said == heard else -0.1


def _rate_answer_and_echo(said: str, heard: str) -> float:
    if said != heard:
        return 0.0
    return 10.0 if heard in COLORS else 0.1


def _rate_echo(said: str, heard: str) -> float:
    return float(said == heard)


# The reward for a word, beside the one that is heard in the same step.
REWARDS: dict[str, Callable[[str, str], float]] = {
    "answer-only": _rate_answer,
    "answer-and-echo": _rate_answer_and_echo,
    "echo": _rate_echo,
}


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, name, REWARDS)


def make_langroom(name: str, seed: int, options: LangroomOptions) -> "LangRoom":
    """A room by what is rewarded."""
    check("langroom", name)
    return LangRoom(REWARDS[name], seed, options)


class LangRoom:
    """The room; `text` is the word that is heard, by its number, and 0 is silence."""

    def __init__(self, rate: Callable[[str, str], float], seed: int, options: LangroomOptions):
        self._rate = rate
        self._options = options
        self._rng = np.random.default_rng(seed)
        self._colors: dict[str, str] = {}  # of the objects
        self._to_say: deque[str] = deque()
        self._heard = SILENCE
        self._player = (0, 0)
        self._count = 0
        self._done = True
        tokens = elements.Space(np.int32, (), 0, options.vocabulary)
        image = elements.Space(np.uint8, (options.size, options.size, 3))
        self.obs_space = {"image": image, "text": tokens, **STEP_SPACES}
        self.act_space = {
            "move": elements.Space(np.int32, (), 0, len(MOVES)),
            "talk": tokens,
            "reset": RESET_SPACE,
        }

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            self._count, self._done = 0, False
            self._player = SIDE // 2, SIDE // 2
            self._to_say.clear()
            self._listen()
            return self._obs(0.0, is_first=True)
        self._move(*MOVES[action["move"]])
        self._listen()
        said = WORDS[action["talk"]] if action["talk"] < len(WORDS) else MEANINGLESS
        self._count += 1
        self._done = self._count >= self._options.length
        return self._obs(self._rate(said, self._heard), is_last=self._done)

    def close(self) -> None:
        pass

    def _move(self, right: int, down: int) -> None:
        x, y = self._player[0] + right, self._player[1] + down
        if 0 < x < SIDE - 1 and 0 < y < SIDE - 1 and (x, y) not in OBJECTS.values():
            self._player = x, y

    def _listen(self) -> None:
        """The next word; after an answer, all objects change their colours and there is another question."""
        if not self._to_say:
            self._colors = {name: str(self._rng.choice(list(COLORS))) for name in OBJECTS}
            name = str(self._rng.choice(list(OBJECTS)))
            question = ["what", "color", "is", "the", name, "?"]
            self._to_say.extend([*question, *[SILENCE] * PAUSE, "it", "is", self._colors[name]])
        self._heard = self._to_say.popleft()

    def _obs(self, reward: float, is_first: bool = False, is_last: bool = False) -> dict:
        return {
            "image": self._draw(),
            "text": np.int32(WORDS.index(self._heard)),
            "reward": np.float32(reward),
            "is_first": is_first,
            "is_last": is_last,
            "is_terminal": False,
        }

    def _draw(self) -> np.ndarray:
        """The cells around the player, and a dark edge where they do not fill the image."""
        size, view = self._options.size, self._options.view
        cell = size // (2 * view + 1)
        edge = (size - cell * (2 * view + 1)) // 2
        image = np.full((size, size, 3), DARK, np.uint8)
        for row in range(2 * view + 1):
            for column in range(2 * view + 1):
                place = self._player[0] + column - view, self._player[1] + row - view
                y, x = edge + row * cell, edge + column * cell
                image[y : y + cell, x : x + cell] = self._draw_cell(place, cell)
        return image

    def _draw_cell(self, place: tuple[int, int], cell: int) -> np.ndarray:
        x, y = place
        if not (0 <= x < SIDE and 0 <= y < SIDE):
            return np.full((cell, cell, 3), DARK, np.uint8)
        is_wall = x in (0, SIDE - 1) or y in (0, SIDE - 1)
        picture = np.full((cell, cell, 3), WALL if is_wall else FLOOR, np.uint8)
        for name, where in OBJECTS.items():
            if where == place:
                picture[draw_shape(name, cell)] = COLORS[self._colors[name]]
        if place == self._player:
            picture[draw_shape("player", cell)] = PLAYER
        return picture


def draw_shape(name: str, cell: int) -> np.ndarray:
    """The pixels of a cell that an object covers."""
    y, x = (np.indices((cell, cell)) + 0.5) / cell - 0.5  # from the middle
    if name == "ball":
        return x**2 + y**2 < 0.42**2
    if name == "rug":
        return (abs(y) < 0.28) & (abs(x) < 0.48) & ~((abs(y) < 0.12) & (abs(x) < 0.3))
    if name == "table":
        return ((y > -0.3) & (y < -0.1)) | ((abs(abs(x) - 0.3) < 0.1) & (y > -0.3) & (y < 0.45))
    if name == "vase":
        return (abs(x) < 0.14 + 0.22 * np.cos(2 * np.pi * (y - 0.15)).clip(0)) & (abs(y) < 0.45)
    assert name == "player", name
    return abs(x) + abs(y) < 0.4
