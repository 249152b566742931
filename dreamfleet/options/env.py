"""The section `env`: options of each suite of environments."""

from dataclasses import dataclass
from typing import Literal

from dreamfleet.base.dimensions import IMAGE_FACTOR, IMAGE_SIDES
from dreamfleet.options.fields import option, section

Actions = Literal["full", "needed"]
Lives = Literal["unused", "discount", "reset"]
Difficulty = Literal["easy", "hard", "extreme", "memory", "exploration"]


def _image_size(default: int, help: str = "image size in pixels") -> int:
    """Height and width that the image networks can take."""
    return option(default, help, at_least=IMAGE_SIDES[0], at_most=IMAGE_SIDES[-1], multiple_of=IMAGE_FACTOR)


@dataclass(frozen=True)
class DummyOptions:
    length: int = option(100, "episode length of dummy_image and dummy_vector", at_least=1)
    size: int = option(64, "image size of dummy_image", at_least=1)


@dataclass(frozen=True)
class GymOptions:
    """Gymnasium environments, and tasks of the form module:attr."""

    size: int = _image_size(64, "resize images to this size if unsupported")
    repeat: int = option(1, "action repeat", at_least=1)
    length: int = option(0, "time limit in steps; 0 leaves it to the environment", at_least=0)
    info: tuple[str, ...] = option(
        ("auto",), "numbers in info to log, by name; auto takes those of the first step, none takes none"
    )


@dataclass(frozen=True)
class AtariOptions:
    size: int = _image_size(96)
    repeat: int = option(4, "action repeat (frame skip)", at_least=1)
    sticky: bool = option(True, "sticky actions (p = 0.25)")
    gray: bool = option(True, "greyscale images")
    actions: Actions = option("full", "action set: full (all 18) or needed (the game's minimal set)")
    lives: Lives = option("unused", "loss of a life: unused, discount (terminal) or reset (ends the episode)")
    noops: int = option(30, "random no-op actions at the start of a game, at most", at_least=0)
    length: int = option(108000, "time limit in frames", at_least=1)


@dataclass(frozen=True)
class Atari100kOptions(AtariOptions):
    """As for `atari`, with other defaults: those of the benchmark of 100 thousand steps."""

    size: int = _image_size(64)
    sticky: bool = option(False, "sticky actions (p = 0.25)")
    gray: bool = option(False, "greyscale images")
    actions: Actions = option("needed", "action set: full (all 18) or needed (the game's minimal set)")


@dataclass(frozen=True)
class DmcOptions:
    size: int = _image_size(64)
    repeat: int = option(1, "action repeat", at_least=1)
    proprio: bool = option(True, "observe the proprioceptive state")
    image: bool = option(True, "observe camera images")
    camera: int = option(-1, "camera index; -1 picks one that shows the robot")


@dataclass(frozen=True)
class CrafterOptions:
    size: int = _image_size(64)


@dataclass(frozen=True)
class MinigridOptions:
    size: int = _image_size(64)


@dataclass(frozen=True)
class MemoryMazeOptions:
    size: int = _image_size(64)


@dataclass(frozen=True)
class ProcgenOptions:
    size: int = _image_size(64)
    levels: int = option(0, "number of levels; 0 is unlimited", at_least=0)
    mode: Difficulty = option("hard", "difficulty")


@dataclass(frozen=True)
class EnvOptions:
    """One section per suite."""

    dummy: DummyOptions = section(DummyOptions)
    gym: GymOptions = section(GymOptions)
    atari: AtariOptions = section(AtariOptions)
    atari100k: Atari100kOptions = section(Atari100kOptions)
    dmc: DmcOptions = section(DmcOptions)
    crafter: CrafterOptions = section(CrafterOptions)
    minigrid: MinigridOptions = section(MinigridOptions)
    memorymaze: MemoryMazeOptions = section(MemoryMazeOptions)
    procgen: ProcgenOptions = section(ProcgenOptions)

    def action_repeat(self, suite: str) -> int:
        """Frames that one step of an environment takes."""
        repeats = {"gym": self.gym, "atari": self.atari, "atari100k": self.atari100k, "dmc": self.dmc}
        return repeats[suite].repeat if suite in repeats else 1
