"""Tasks of the DeepMind Control Suite: joint angles, images, or both."""

from typing import Any

import elements
import numpy as np

from dreamfleet.envs.adapt import fit
from dreamfleet.envs.contract import STEP_SPACES, Act, Env, Obs
from dreamfleet.envs.dm_env import FromDmEnv
from dreamfleet.envs.suites.names import check_name
from dreamfleet.envs.suites.rendering import choose_renderer
from dreamfleet.envs.wrappers import ActionRepeat, Wrapper
from dreamfleet.errors import ConfigError
from dreamfleet.options.env import DmcOptions

CAMERAS = {"quadruped": 2}  # where the first camera does not show the robot well


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    choose_renderer(f"{suite}_{name}", is_needed=False)  # before the import, where MUJOCO_GL is read
    check_name(suite, name, _tasks())


def _tasks() -> dict[str, tuple[str, str]]:
    from dm_control import suite

    return {f"{domain}_{task}": (domain, task) for domain, task in suite.ALL_TASKS}


def make_dmc(name: str, seed: int, options: DmcOptions) -> Env:
    """A task named DOMAIN_TASK."""
    if not (options.proprio or options.image):
        raise ConfigError("env.dmc.image", False, "leaves nothing to observe beside env.dmc.proprio=False", "set one")
    # Before the import, where MUJOCO_GL is read, and without images too: another task of this process may have some.
    choose_renderer(f"dmc_{name}", is_needed=options.image)
    from dm_control import suite

    check("dmc", name)
    domain, task = _tasks()[name]
    control = suite.load(domain, task, task_kwargs={"random": seed % 2**32})
    env: Env = ActionRepeat(FromDmEnv(control), options.repeat)
    if options.image:
        camera = CAMERAS.get(domain, 0) if options.camera == -1 else options.camera
        env = Camera(env, control, options.size, camera, options.proprio)
    return fit(env, options.size)


class Camera(Wrapper):
    """Adds what a camera sees, beside the other observations or instead of them."""

    def __init__(self, env: Env, control: Any, size: int, camera: int | str, keep_others: bool):
        super().__init__(env)
        self._render = lambda: control.physics.render(size, size, camera_id=camera)
        kept = {k: s for k, s in env.obs_space.items() if keep_others or k in STEP_SPACES}
        self._space = {**kept, "image": elements.Space(np.uint8, (size, size, 3))}

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return self._space

    def step(self, action: Act) -> Obs:
        obs = {**self.env.step(action), "image": self._render()}
        return {k: obs[k] for k in self._space}
