"""LocoNav: a walker that has to learn to walk and to find the way to the goal of a maze, on dm_control's locomotion.

The tasks are named WALKER_MAZE, such as ant_maze_m.
"""

from typing import Any

import elements
import numpy as np

from dreamfleet.base.keys import LOG_PREFIX
from dreamfleet.envs.adapt import fit
from dreamfleet.envs.contract import Act, Env, Obs
from dreamfleet.envs.dm_env import FromDmEnv
from dreamfleet.envs.suites.dmc import Camera
from dreamfleet.envs.suites.names import check_name
from dreamfleet.envs.suites.rendering import choose_renderer
from dreamfleet.envs.wrappers import ActionRepeat, Wrapper
from dreamfleet.options.env import LoconavOptions

WALKERS = ("ant",)
MAZES = ("maze_s", "maze_m", "maze_l", "maze_xl", "maze_xxl", "empty")
TIME_LIMIT_S = 60.0


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, name, [f"{walker}_{maze}" for walker in WALKERS for maze in MAZES])


def make_loconav(name: str, seed: int, options: LoconavOptions) -> Env:
    """A walker in a maze; the seed draws its first poses and, in the empty one, where it and the goal are."""
    check("loconav", name)
    choose_renderer(f"loconav_{name}")  # before the imports, where MUJOCO_GL is read
    from dm_control import composer

    from dreamfleet.envs.suites.loconav_maze import make_task

    task, walker = make_task(name.partition("_")[2], seed, options.again, options.terminates)
    control = composer.Environment(
        task,
        time_limit=TIME_LIMIT_S,
        random_state=np.random.RandomState(seed % 2**32),
        strip_singleton_obs_buffer_dim=True,
    )
    env = Coverage(ActionRepeat(FromDmEnv(control), options.repeat), control, walker)
    camera = walker.egocentric_camera.full_identifier if options.camera == -1 else options.camera
    return fit(Camera(env, control, options.size, camera, keep_others=True), options.size)


class Coverage(Wrapper):
    """Counts the square metres that the walker has been in during the episode, as `log/coverage`."""

    def __init__(self, env: Env, control: Any, walker: Any):
        super().__init__(env)
        self._find = lambda: walker.get_pose(control.physics)[0]
        self._visited: set[tuple[int, int]] = set()
        self._space = env.obs_space | {f"{LOG_PREFIX}coverage": elements.Space(np.float32)}

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return self._space

    def step(self, action: Act) -> Obs:
        obs = self.env.step(action)
        if obs["is_first"]:
            self._visited = set()
        x, y, _ = np.floor(self._find()).astype(int).tolist()
        self._visited.add((x, y))
        return {**obs, f"{LOG_PREFIX}coverage": np.float32(len(self._visited))}
