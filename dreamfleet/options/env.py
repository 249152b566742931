"""The section `env`: options of each suite of environments."""

from dataclasses import dataclass
from typing import Literal

from dreamfleet.base.dimensions import IMAGE_FACTOR, IMAGE_SIDES
from dreamfleet.options.fields import option, section

Actions = Literal["full", "needed"]
Lives = Literal["unused", "discount", "reset"]
Filter = Literal["bilinear", "area"]
LabActions = Literal["popart", "impala"]
RESIZE = "image filter: bilinear (as in Pillow) or area (as in OpenCV)"
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
    resize: Filter = option("bilinear", RESIZE, before="area")


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
    size: int = _image_size(96)
    resize: Filter = option("bilinear", RESIZE, before="area")
    levels: int = option(0, "number of levels; 0 is unlimited", at_least=0)
    mode: Difficulty = option("hard", "difficulty")


@dataclass(frozen=True)
class BsuiteOptions:
    results: str = option("", "directory of the result files; empty means LOGDIR/bsuite", can_change=True)


@dataclass(frozen=True)
class PinpadOptions:
    size: int = _image_size(64)
    length: int = option(10000, "time limit in steps", at_least=1)


@dataclass(frozen=True)
class LangroomOptions:
    size: int = _image_size(64)
    length: int = option(200, "time limit in steps", at_least=1)
    view: int = option(2, "cells that the agent sees in each direction", at_least=1, at_most=8)
    vocabulary: int = option(15, "number of tokens; those beyond the 15 that are used mean nothing", at_least=15)


@dataclass(frozen=True)
class LoconavOptions:
    size: int = _image_size(64)
    repeat: int = option(1, "action repeat", at_least=1)
    camera: int = option(-1, "camera index; -1 is the walker's own view", at_least=-1)
    again: bool = option(False, "go back to the start at the goal, instead of being rewarded for every step there")
    terminates: bool = option(False, "end the episode when the walker has fallen over")


@dataclass(frozen=True)
class DmlabOptions:
    size: int = _image_size(64)
    repeat: int = option(4, "action repeat", at_least=1)
    episodic: bool = option(True, "the end of an episode is terminal, although it is one of time")
    actions: LabActions = option("popart", "action set: popart (15 actions) or impala (9)")
    holdout: bool = option(False, "levels that are kept for evaluation")


@dataclass(frozen=True)
class MinecraftOptions:
    size: int = _image_size(64)
    break_speed: float = option(100.0, "how many times as quick as in the game blocks are broken", above=0)
    length: int = option(36000, "time limit in steps", at_least=1)


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
    bsuite: BsuiteOptions = section(BsuiteOptions)
    memorymaze: MemoryMazeOptions = section(MemoryMazeOptions)
    procgen: ProcgenOptions = section(ProcgenOptions)
    pinpad: PinpadOptions = section(PinpadOptions)
    langroom: LangroomOptions = section(LangroomOptions)
    loconav: LoconavOptions = section(LoconavOptions)
    dmlab: DmlabOptions = section(DmlabOptions)
    minecraft: MinecraftOptions = section(MinecraftOptions)

    def action_repeat(self, suite: str) -> int:
        """Frames that one step of an environment takes."""
        return getattr(getattr(self, suite, None), "repeat", 1)
