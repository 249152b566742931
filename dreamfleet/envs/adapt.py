"""Turns whatever a user calls an environment into one that keeps the contract and that the networks can take."""

import functools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamfleet.base.attributes import find
from dreamfleet.envs.contract import Env, is_env
from dreamfleet.envs.images import is_channel_first, is_usable
from dreamfleet.envs.wrappers import ChannelLast, ClipAction, NormalizeAction, ResizeImage
from dreamfleet.errors import EnvError

log = logging.getLogger("dreamfleet.envs")

DEFAULT_SIZE = 64


def as_env(env: Any, seed: int | None = None, size: int = DEFAULT_SIZE, info: Sequence[str] = ("auto",)) -> Env:
    """An environment of Gymnasium (also a VectorEnv) or dm_env as one of ours; one of ours is returned as it is.

    `info` names the numbers of Gymnasium's info to log: `auto` takes those of the first two steps, `none` takes none.
    """
    if is_env(env):
        return env
    if find(env, "observation_space") is not None:
        return fit(_from_gymnasium(env, seed, info), size)
    if find(env, "observation_spec") is not None:
        from dreamfleet.envs.dm_env import FromDmEnv

        return fit(FromDmEnv(env), size)
    raise EnvError(
        f"{type(env).__name__} is not an environment: it has neither obs_space, act_space, step and close (ours), nor "
        "observation_space (Gymnasium), nor observation_spec (dm_env)"
    )


def fit(env: Env, size: int = DEFAULT_SIZE) -> Env:
    """Wraps an environment so that images have a usable size and layout, and continuous actions are in [-1, 1]."""
    images = {k: s.shape for k, s in env.obs_space.items() if s.dtype == np.uint8 and len(s.shape) in (2, 3)}
    if any(len(shape) == 2 or is_channel_first(shape) for shape in images.values()):
        env = ChannelLast(env)
        images = {k: env.obs_space[k].shape for k in images}
    if not all(map(is_usable, images.values())) or len({shape[:2] for shape in images.values()}) > 1:
        _say_resized(tuple(sorted(images.items())), size)
        env = ResizeImage(env, size, size)
    if any(not space.discrete for space in env.act_space.values()):
        env = ClipAction(NormalizeAction(env))
    return env


def _from_gymnasium(env: Any, seed: int | None, info: Sequence[str]) -> Env:
    from dreamfleet.envs.gymnasium import FromGymnasium, probe_info
    from dreamfleet.envs.gymnasium_vector import FromGymnasiumVector

    names: Sequence[str] | None = info
    if tuple(info) == ("auto",):
        names = probe_info(env, seed)
    elif tuple(info) == ("none",):
        names = None
    if hasattr(env, "single_observation_space"):
        return FromGymnasiumVector(env, seed, names)
    return FromGymnasium(env, seed, names)


@functools.cache  # once for each kind of image
def _say_resized(images: tuple, size: int) -> None:
    shapes = ", ".join(f"'{key}' {shape}" for key, shape in images)
    log.warning("unsupported image size %s: resized to %d x %d (--env.gym.size)", shapes, size, size)
