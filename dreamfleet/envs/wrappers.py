"""Environments around environments, each named for what it changes; used by the suites and by `adapt`."""

import functools
import logging

import elements
import numpy as np

from dreamfleet.envs.contract import Act, Env, Obs, count_envs, draw
from dreamfleet.envs.images import is_channel_first, resize

log = logging.getLogger("dreamfleet.envs")


class Wrapper:
    """Passes everything through; subclasses change what they are named for."""

    def __init__(self, env: Env):
        self.env = env

    @property
    def num_envs(self) -> int | None:
        return count_envs(self.env)

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return self.env.obs_space

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return self.env.act_space

    def step(self, action: Act) -> Obs:
        return self.env.step(action)

    def render(self) -> np.ndarray | None:
        return draw(self.env)

    def close(self) -> None:
        self.env.close()


class NormalizeAction(Wrapper):
    """Continuous actions are between -1 and 1; they are scaled to their bounds where they have both."""

    def __init__(self, env: Env):
        super().__init__(env)
        self._bounds = {}
        self._space = dict(env.act_space)
        for key, space in env.act_space.items():
            if not space.discrete:
                is_bounded = np.isfinite(space.low) & np.isfinite(space.high)
                self._bounds[key] = np.where(is_bounded, space.low, -1.0), np.where(is_bounded, space.high, 1.0)
                self._space[key] = elements.Space(space.dtype, space.shape, -1, 1)

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return self._space

    def step(self, action: Act) -> Obs:
        action = dict(action)
        for key, (low, high) in self._bounds.items():
            scaled = (np.asarray(action[key]) + 1) / 2 * (high - low) + low
            action[key] = scaled.astype(self._space[key].dtype)
        return self.env.step(action)


class ClipAction(Wrapper):
    """Continuous actions outside their bounds are moved to the nearest one inside."""

    def step(self, action: Act) -> Obs:
        action = dict(action)
        for key, space in self.env.act_space.items():
            if not space.discrete:
                action[key] = np.clip(action[key], space.low, space.high).astype(space.dtype)
        return self.env.step(action)


class ActionRepeat(Wrapper):
    """Every action is taken `repeat` times, the rewards summed; an episode's first and last step end the repetition."""

    def __init__(self, env: Env, repeat: int):
        super().__init__(env)
        self._repeat = repeat

    def step(self, action: Act) -> Obs:
        obs = self.env.step(action)
        reward = np.float32(obs["reward"])
        for _ in range(self._repeat - 1):
            if obs["is_first"] or obs["is_last"]:
                break
            obs = self.env.step(action)
            reward += obs["reward"]
        return {**obs, "reward": np.float32(reward)}


class TimeLimit(Wrapper):
    """Episodes end after `length` steps at the latest, which is not a terminal end."""

    def __init__(self, env: Env, length: int):
        super().__init__(env)
        self._length = length
        self._count = 0
        self._done = False

    def step(self, action: Act) -> Obs:
        if self._done:
            action = {**action, "reset": np.bool_(True)}
        obs = self.env.step(action)
        self._count = 0 if obs["is_first"] else self._count + 1
        self._done = bool(obs["is_last"]) or self._count >= self._length
        return {**obs, "is_last": self._done}


class ChannelLast(Wrapper):
    """Images are (H, W, C), whether they come so, as (C, H, W), or without channels."""

    def __init__(self, env: Env):
        super().__init__(env)
        self._flat, self._turned = [], []
        self._space = dict(env.obs_space)
        for key, space in env.obs_space.items():
            shape = space.shape
            if space.dtype != np.uint8:
                continue
            if len(shape) == 2:
                self._flat.append(key)
                self._space[key] = elements.Space(np.uint8, (*shape, 1))
            elif len(shape) == 3 and is_channel_first(shape):
                self._turned.append(key)
                self._space[key] = elements.Space(np.uint8, (*shape[1:], shape[0]))
                _say_turned(key, shape)

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return self._space

    def step(self, action: Act) -> Obs:
        obs = dict(self.env.step(action))
        for key in self._flat:
            obs[key] = np.asarray(obs[key])[..., None]
        for key in self._turned:
            obs[key] = np.moveaxis(obs[key], -3, -1)
        return obs


class ResizeImage(Wrapper):
    """Images are `height` by `width`, averaged over the area of each pixel."""

    def __init__(self, env: Env, height: int, width: int):
        super().__init__(env)
        self._size = height, width
        images = {k: s for k, s in env.obs_space.items() if s.dtype == np.uint8 and len(s.shape) == 3}
        self._keys = [k for k, s in images.items() if s.shape[:2] != self._size]
        self._space = env.obs_space | {k: elements.Space(np.uint8, (*self._size, images[k].shape[2])) for k in images}

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return self._space

    def step(self, action: Act) -> Obs:
        obs = dict(self.env.step(action))
        for key in self._keys:
            obs[key] = resize(obs[key], *self._size)
        return obs


@functools.cache  # once for each kind of image
def _say_turned(key: str, shape: tuple[int, ...]) -> None:
    log.warning("'%s' of shape %s is taken as a channel-first image and transposed", key, shape)
