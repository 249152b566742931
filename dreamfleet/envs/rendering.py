"""Pictures of an environment for people: what it renders, else an image that the agent observes."""

import elements
import numpy as np

from dreamfleet.base.keys import LOG_PREFIX
from dreamfleet.envs.contract import Act, Env, Obs, draw, reset_action
from dreamfleet.envs.wrappers import Wrapper
from dreamfleet.errors import ConfigError, EnvError

FRAME = f"{LOG_PREFIX}frame"


class WithFrame(Wrapper):
    """Adds a picture, uint8 (H, W, 3), as `log/frame`, which no agent sees."""

    def __init__(self, env: Env, task: str):
        super().__init__(env)
        if self.num_envs:
            raise ConfigError("task", task, "is a vector environment", "name a single environment")
        obs = env.step(reset_action(env))  # before that, most cannot draw themselves
        images = {k: s.shape for k, s in env.obs_space.items() if s.dtype == np.uint8 and len(s.shape) == 3}
        self._is_drawn, why_not = _can_draw(env)
        if not self._is_drawn and not images:
            remedy = "let it take render_mode='rgb_array' and pass it on to Gymnasium, or give it a method render()"
            raise ConfigError("task", task, f"neither renders images{why_not} nor observes any", remedy)
        self._key = max(images, key=lambda key: (np.prod(images[key]), key), default="")
        self._shape = self._picture(obs).shape

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return {**self.env.obs_space, FRAME: elements.Space(np.uint8, self._shape)}

    def step(self, action: Act) -> Obs:
        obs = self.env.step(action)
        return {**obs, FRAME: self._picture(obs)}

    def _picture(self, obs: Obs) -> np.ndarray:
        picture = draw(self.env) if self._is_drawn else obs[self._key]
        if picture is None or not _is_picture(picture := np.asarray(picture)):
            raise EnvError(f"{type(self.env).__name__}.render() returned no picture, uint8 (H, W, 3)")
        return picture if picture.shape[2] == 3 else np.repeat(picture[..., -1:], 3, 2)


def _can_draw(env: Env) -> tuple[bool, str]:
    """Whether an environment can draw itself, and why not if it tried."""
    try:
        return _is_picture(draw(env)), ""
    except Exception as error:  # a package or a display that is missing, or another kind of render() altogether
        return False, f" ({error})"


def _is_picture(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3
