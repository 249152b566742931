"""What an environment is: the contract every suite, wrapper and user environment keeps."""

from typing import Any, Protocol, TypeGuard, runtime_checkable

import elements
import numpy as np

from dreamfleet.base.attributes import find
from dreamfleet.errors import EnvError

Obs = dict[str, Any]
Act = dict[str, Any]

# Present in every observation, with these spaces.
STEP_SPACES = {
    "reward": elements.Space(np.float32),
    "is_first": elements.Space(bool),
    "is_last": elements.Space(bool),
    "is_terminal": elements.Space(bool),
}
RESET_SPACE = elements.Space(bool)
RENDER_MODE = "rgb_array"  # what Gymnasium calls drawing into an array
# Added to the observation and the action on their way to the agent.
RESERVED_KEYS = {"envid", "is_eval", "reset", "stepid", "consec"}


@runtime_checkable
class Env(Protocol):
    """An environment that is stepped with named actions and answers with named observations.

    An action with `reset` set starts a new episode and ignores the other entries. The first observation of an episode
    has `is_first`, the last `is_last`; `is_terminal` says that the episode ended for good rather than by a time limit.
    Keys that begin with `log/` are episode statistics: the agent never sees them. An environment with the attribute
    `num_envs` is that many in one: its spaces are those of one, its actions and observations have a leading dimension.
    One with a method `render()` that returns a picture, uint8 (H, W, 3), or None is recorded with it.
    """

    @property
    def obs_space(self) -> dict[str, elements.Space]: ...

    @property
    def act_space(self) -> dict[str, elements.Space]: ...

    def step(self, action: Act) -> Obs: ...

    def close(self) -> None: ...


def is_env(value: Any) -> TypeGuard[Env]:
    """Whether a value keeps the contract, be it by attributes that it passes on from another environment."""
    return all(find(value, name) is not None for name in ("obs_space", "act_space", "step", "close"))


def count_envs(env: Any) -> int | None:
    """How many environments it is in one; None for one that is not stepped as several."""
    return find(env, "num_envs")


def check_spaces(env: Env) -> None:
    """Raises EnvError unless both spaces have the keys and types that the contract asks for."""
    for key, space in STEP_SPACES.items():
        given = env.obs_space.get(key)
        if given is None:
            raise EnvError(f"{type(env).__name__}.obs_space has no '{key}'; add it as {space}")
        if given.shape != space.shape or given.dtype != space.dtype:
            raise EnvError(f"{type(env).__name__}.obs_space['{key}'] is {given}; it must be {space}")
    if "reset" not in env.act_space:
        raise EnvError(f"{type(env).__name__}.act_space has no 'reset'; add it as {RESET_SPACE}")
    taken = env.obs_space.keys() & (env.act_space.keys() | RESERVED_KEYS)
    if taken:
        raise EnvError(
            f"{type(env).__name__}.obs_space has {sorted(taken)}, which the action or the transition needs; rename them"
        )


def take_step(env: Env, action: Act) -> Obs:
    """Steps an environment; one that would end the process raises instead, as the role would seem to be done."""
    try:
        return env.step(action)
    except SystemExit as exit:
        raise exit_error(exit) from exit


def exit_error(exit: SystemExit) -> EnvError:
    return EnvError(f"the environment called sys.exit({exit.code!r}) in step")


def can_hold(expected: np.dtype, given: np.dtype) -> bool:
    """Whether values of a type are converted: to another width, and whole numbers to fractions, but not the reverse."""
    return given.kind in "biuf" and (given.kind != "f" or expected.kind == "f")


def reset_action(env: Env) -> Act:
    """An action that starts a new episode; in the entries that are ignored, zeros, or what the space has next to them.

    Wrappers may check every entry.
    """
    action: Act = {k: _near_zero(s) for k, s in env.act_space.items()}
    action["reset"] = np.bool_(True)
    return action


def _near_zero(space: elements.Space) -> np.ndarray:
    zeros = np.zeros(space.shape, space.dtype)
    return zeros if zeros in space else np.clip(zeros, space.low, space.high - space.discrete).astype(space.dtype)


def draw(env: Any) -> np.ndarray | None:
    """What an environment shows to people at the moment, if it can."""
    return env.render() if callable(find(env, "render")) else None
