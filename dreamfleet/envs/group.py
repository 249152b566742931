"""K environments stepped together into arrays with a leading K, each rebuilt when it raises."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import count_nonzero, isfinite, ndarray

from dreamfleet import lifecycle
from dreamfleet.base import waits
from dreamfleet.base.arrays import Batch
from dreamfleet.base.keys import is_logged
from dreamfleet.envs.adapt import as_env
from dreamfleet.envs.contract import Env, can_hold, check_spaces, count_envs, exit_error, reset_action, take_step
from dreamfleet.envs.registry import takes
from dreamfleet.errors import ConfigError, EnvError

log = logging.getLogger("dreamfleet.envs")

MAX_FAILURES = 5
SCALARS = (bool, int, float, np.bool_, np.float32)  # whose shape need not be asked for: this is the hot path


class Member(NamedTuple):
    """An environment and its rows in the arrays: one number, or a slice if it is several environments in one."""

    env: Env
    rows: int | slice
    env_id: int

    def __str__(self) -> str:
        return f"environment {self.env_id}"


class Part(NamedTuple):
    """One value of a member's observations: where it goes, and what it has to be like."""

    key: str
    buffer: np.ndarray
    shape: tuple[int, ...]
    dtype: np.dtype
    numbers: np.ndarray | None  # as they are in the buffer, if they must be finite
    is_finite: np.ndarray  # room for the answer


class EnvGroup:
    """Owns the environments of one worker process.

    An environment that raises is logged with its traceback, rebuilt and starts a new episode; a factory that takes
    `rebuild` gets the number of the rebuild, for another seed than the one that led to the failure. One that cannot
    even start, or raises `MAX_FAILURES` times without finishing an episode, is beyond help: the error leaves `step`.
    One that takes more than `timeout_s` for a step or for its construction is replaced together with its process.
    """

    def __init__(self, make_env: Callable[..., Any], env_ids: Sequence[int], timeout_s: float = 0.0):
        self.rebuilds = 0
        self._takes_rebuild = takes(make_env, "rebuild")
        self._limit = lifecycle.Limit(timeout_s)
        self._make_env = make_env
        self._ids = list(env_ids)
        self._members = self._build_members()
        self._limit.end()
        self._steps = [waits.ENV_STEP(env_id=member.env_id) for member in self._members]
        self._failures = [0] * len(self._members)  # since the last episode that was finished
        self._unfinished = np.ones(len(self._ids), bool)  # not an episode yet
        self._has_progressed = False
        self._spaces = self._members[0].env.obs_space
        self._keys: list[str] = []  # in the order of the first observation
        self.use_buffers(self.make_buffers())

    @property
    def obs_space(self) -> dict[str, Any]:
        return self._spaces

    @property
    def act_space(self) -> dict[str, Any]:
        return self._members[0].env.act_space

    def reset_actions(self) -> Batch:
        """Actions that start a new episode everywhere."""
        action = reset_action(self._members[0].env)
        return {k: np.repeat(np.asarray(v)[None], len(self._ids), 0) for k, v in action.items()}

    def step(self, acts: Batch) -> Batch:
        """Steps every environment with its row of `acts`; the arrays returned are reused by the next call."""
        for i, member in enumerate(self._members):
            self._limit.begin(self._steps[i])
            self._step_one(i, {k: v[member.rows] for k, v in acts.items()})
        self._limit.end()
        if not self._has_progressed:
            self._watch_progress()
        return self._obs

    def make_buffers(self) -> Batch:
        """Arrays for `use_buffers`; after the first step they are in the order of the environment's observations."""
        spaces = {k: self._spaces[k] for k in (*self._keys, *self._spaces)}
        return {k: np.zeros((len(self._ids), *s.shape), s.dtype) for k, s in spaces.items()}

    @property
    def buffers(self) -> Batch:
        """The arrays that steps write to."""
        return self._obs

    def use_buffers(self, buffers: Batch) -> None:
        """Gives up the arrays of the last step, for others that the next ones write to."""
        self._obs = buffers
        self._parts = {m.env_id: [self._find_part(key, m.rows) for key in buffers] for m in self._members}

    def close(self) -> None:
        for member in self._members:
            self._discard(member)

    def _watch_progress(self) -> None:
        """The worker gets on once all have finished an episode: others do not make up for one that never does."""
        self._unfinished &= ~self._obs["is_last"]
        if not self._unfinished.any():
            self._has_progressed = True
            lifecycle.progress()

    def _step_one(self, i: int, action: dict) -> None:
        member = self._members[i]
        try:
            self._store(member, member.env.step(action))
            if self._failures[i] and np.any(self._obs["is_last"][member.rows]):
                self._failures[i] = 0
        except SystemExit as exit:
            self._recover(i, exit_error(exit))
        except Exception as error:
            self._recover(i, error)

    def _recover(self, i: int, error: Exception) -> None:
        """Builds an environment again that failed, and starts an episode."""
        member = self._members[i]
        self.rebuilds += 1
        self._failures[i] += 1
        if self._failures[i] >= MAX_FAILURES:
            raise error
        log.error("%s failed, rebuilding it", member, exc_info=error)
        self._discard(member)
        self._members[i] = member = member._replace(env=self._build(member.env_id))
        self._limit.begin(self._steps[i])
        resets = {k: v[member.rows] for k, v in self.reset_actions().items()}
        self._store(member, take_step(member.env, resets))

    def _store(self, member: Member, obs: dict) -> None:
        rows = member.rows
        if not self._keys:
            self._keys = [key for key in obs if key in self._spaces]
        for key, buffer, shape, dtype, numbers, is_finite in self._parts[member.env_id]:
            try:
                value = obs[key]
            except KeyError:
                raise EnvError(f"{member}: the observation has no '{key}'; it has {sorted(obs)}") from None
            kind = type(value)
            given = value.shape if kind is ndarray else () if kind in SCALARS else np.shape(value)
            if given != shape:
                raise EnvError(f"{member}: observation '{key}' has shape {given}, but its space says {shape}")
            if kind is ndarray and value.dtype is not dtype:
                _check_dtype(member, key, value.dtype, dtype)
            buffer[rows] = value
            if numbers is not None and not _are_finite(numbers, is_finite):
                raise EnvError(f"{member}: observation '{key}' has NaN or infinity in it")

    def _build_members(self) -> list[Member]:
        members, start = [], 0
        while start < len(self._ids):
            env = self._build(self._ids[start])
            count = count_envs(env)
            if start + (count or 1) > len(self._ids):
                reason = f"is not a multiple of the {count} environments that the task makes at once"
                raise ConfigError("run.envs_per_worker", len(self._ids), reason, f"set it to {count}")
            rows = slice(start, start + count) if count else start
            members.append(Member(env, rows, self._ids[start]))
            start += count or 1
        return members

    def _build(self, env_id: int) -> Env:
        self._limit.begin(waits.ENV_CONSTRUCTION(env_id=env_id))
        given = {"rebuild": self.rebuilds} if self._takes_rebuild else {}
        env = as_env(self._make_env(env_id, **given))
        check_spaces(env)
        return env

    def _discard(self, member: Member) -> None:
        try:
            member.env.close()
        except Exception:
            log.exception("%s raised on close", member)

    def _find_part(self, key: str, rows: int | slice) -> Part:
        buffer = self._obs[key]
        view = buffer[rows if isinstance(rows, slice) else slice(rows, rows + 1)]
        must_be_finite = view.dtype.kind == "f" and not is_logged(key)  # what the agent gets to see
        shape = view.shape if isinstance(rows, slice) else view.shape[1:]
        return Part(key, buffer, shape, buffer.dtype, view if must_be_finite else None, np.empty(view.shape, bool))


def _are_finite(numbers: np.ndarray, room: np.ndarray) -> bool:
    if numbers.size == 1:  # as the reward is: Python is the quicker judge
        return math.isfinite(numbers.item())
    return count_nonzero(isfinite(numbers, room)) == room.size


def _check_dtype(member: Member, key: str, given: np.dtype, expected: np.dtype) -> None:
    if not can_hold(expected, given):
        raise EnvError(f"{member}: observation '{key}' is {given}, but its space says {expected}")
