"""MiniGrid and BabyAI, seen as an image of what is before the agent; the text of the mission is left out."""

import gymnasium
import minigrid  # noqa: F401 (registers the tasks)
from gymnasium.wrappers import FilterObservation
from minigrid.wrappers import RGBImgPartialObsWrapper

from dreamfleet.envs.contract import Env
from dreamfleet.envs.gymnasium import FromGymnasium
from dreamfleet.envs.suites.names import check_name
from dreamfleet.envs.wrappers import ResizeImage
from dreamfleet.options.env import MinigridOptions

PREFIXES = ("MiniGrid-", "BabyAI-")


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, _full(name), [task for task in gymnasium.registry if task.startswith(PREFIXES)])


def _full(name: str) -> str:
    return name if name.startswith(PREFIXES) else f"MiniGrid-{name}"


def make_minigrid(name: str, seed: int, options: MinigridOptions) -> Env:
    """A task by its registered id; `MiniGrid-` in front of it may be left out."""
    check("minigrid", name)
    env = RGBImgPartialObsWrapper(gymnasium.make(_full(name)), tile_size=8)
    env = FilterObservation(env, filter_keys=["image", "direction"])
    return ResizeImage(FromGymnasium(env, seed), options.size, options.size)
