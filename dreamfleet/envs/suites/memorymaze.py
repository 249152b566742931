"""Memory Maze: find objects of the colour asked for, in a maze that must be remembered."""

from dreamfleet.envs.contract import Env
from dreamfleet.envs.dm_env import FromDmEnv
from dreamfleet.envs.suites.names import check_name
from dreamfleet.envs.suites.rendering import choose_renderer
from dreamfleet.options.env import MemoryMazeOptions

SIZES = ("9x9", "11x11", "13x13", "15x15")


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, name, SIZES)


def make_memorymaze(name: str, seed: int, options: MemoryMazeOptions) -> Env:
    """A maze by its size, such as 9x9."""
    check("memorymaze", name)
    choose_renderer(f"memorymaze_{name}")
    from memory_maze import tasks  # it reads MUJOCO_GL when it is imported

    make = getattr(tasks, f"memory_maze_{name}")
    return FromDmEnv(make(seed=seed % 2**32, camera_resolution=options.size, image_only_obs=True))
