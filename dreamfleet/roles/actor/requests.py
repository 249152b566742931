"""Requests for actions: checked, gathered into one batch, and answered."""

import threading
from dataclasses import dataclass

import numpy as np

from dreamfleet.agent.contract import Batch
from dreamfleet.errors import BadRequest
from dreamfleet.roles.actor.transitions import join_rows
from dreamfleet.roles.protocol import ENV_ID, IS_EVAL, LOG_PREFIX, RESET, ActSession

FLAGS = ("is_first", "is_last", "is_terminal")


@dataclass(slots=True, eq=False)
class ActRequest:
    """Observations of K environments from one message, with a leading K."""

    env_ids: list[int]
    is_eval: bool
    is_single: bool
    obs: Batch

    @property
    def rows(self) -> int:
        return len(self.env_ids)

    @property
    def group(self) -> bool:
        """Training and evaluation are batched apart."""
        return self.is_eval


class RequestParser:
    """Turns wire data into requests and refuses what does not fit the observations seen before.

    Of two processes that step the same environment the newer wins: the other's requests are refused from then on.
    """

    def __init__(self, obs_space: dict | None = None):
        self._specs: dict[bool, dict[str, tuple]] = {}  # by is_eval: key -> (dtype, shape)
        self._spaces = {k: (np.dtype(s.dtype), s.shape) for k, s in (obs_space or {}).items()}
        self._sessions: dict[int, str] = {}
        self._replaced: set[str] = set()
        self._lock = threading.Lock()

    def parse_one(self, data: dict, meta: dict) -> ActRequest:
        """A request of the single form: no leading dimension."""
        obs = _checked_dict(data)
        env_id, is_eval = obs.pop(ENV_ID), obs.pop(IS_EVAL)
        is_whole = type(env_id) is int or (np.ndim(env_id) == 0 and np.asarray(env_id).dtype.kind in "iu")
        if not is_whole or not 0 <= int(env_id) < 2**63:
            raise BadRequest(f"'{ENV_ID}' must be a non-negative integer; got {env_id!r}")
        if type(is_eval) is not bool and np.ndim(is_eval):
            raise BadRequest(f"'{IS_EVAL}' must be a bool; got {is_eval!r}")
        obs = {k: (v if type(v) is np.ndarray else np.asarray(v))[None] for k, v in obs.items()}
        return self._checked(ActRequest([int(env_id)], bool(is_eval), True, obs), meta)

    def parse_many(self, data: dict, meta: dict) -> ActRequest:
        """A request with a leading K everywhere."""
        obs = {k: np.asarray(v) for k, v in _checked_dict(data).items()}
        env_ids, is_eval = obs.pop(ENV_ID), obs.pop(IS_EVAL)
        # As int64, in which the unsigned ids that are too large for it turn negative.
        if env_ids.ndim != 1 or env_ids.dtype.kind not in "iu" or not len(env_ids) or (env_ids.astype(int) < 0).any():
            raise BadRequest(f"'{ENV_ID}' must be non-negative integers, one per environment; got {env_ids!r}")
        if is_eval.shape != env_ids.shape or is_eval.any() != is_eval.all():
            raise BadRequest(f"'{IS_EVAL}' must be the same for all environments of a message; got {is_eval!r}")
        request = ActRequest(env_ids.tolist(), bool(is_eval[0]), False, obs)
        if len(set(request.env_ids)) != len(request.env_ids):
            raise BadRequest(f"'{ENV_ID}' names an environment twice: {request.env_ids}")
        return self._checked(request, meta)

    def _checked(self, request: ActRequest, meta: dict) -> ActRequest:
        self._check_spec(request)
        self._check_session(request.env_ids, ActSession.from_meta(meta).session)
        return request

    def _check_spec(self, request: ActRequest) -> None:
        spec = self._specs.get(request.is_eval)
        if spec is None:
            spec = self._first_spec(request)
        obs, rows = request.obs, request.rows
        if obs.keys() != spec.keys():
            missing, extra = sorted(spec.keys() - obs.keys()), sorted(obs.keys() - spec.keys())
            raise BadRequest(f"the observation has other keys than expected: missing {missing}, extra {extra}")
        for key, (dtype, shape) in spec.items():
            value = obs[key]
            if (value.dtype is not dtype and value.dtype != dtype) or value.shape != (rows, *shape):
                raise BadRequest(
                    f"observation '{key}' is {value.dtype.name}{value.shape}, expected {dtype.name}{(rows, *shape)}"
                )
        self._specs[request.is_eval] = spec  # not before it was kept: a bad first request must not rule out good ones

    def _first_spec(self, request: ActRequest) -> dict[str, tuple]:
        """What later requests must look like: the agent's spaces where it has some, else this first request."""
        for key in (*FLAGS, "reward"):
            value = request.obs.get(key)
            if value is None or value.ndim != 1 or value.dtype.kind != ("f" if key == "reward" else "b"):
                raise BadRequest(f"the observation needs '{key}' as {'a float' if key == 'reward' else 'a bool'}")
        given = {k: (v.dtype, v.shape[1:]) for k, v in request.obs.items()}
        if not self._spaces:
            return given
        own = {k: v for k, v in given.items() if k.startswith(LOG_PREFIX) or k in (*FLAGS, "reward")}
        return own | {k: v for k, v in self._spaces.items() if not k.startswith(LOG_PREFIX)}

    def _check_session(self, env_ids: list[int], session: str) -> None:
        if not session:
            return
        with self._lock:
            if session in self._replaced:
                raise BadRequest(f"environments {env_ids} were taken over by a newer process")
            for env_id in env_ids:
                before = self._sessions.get(env_id)
                if before != session:
                    self._sessions[env_id] = session
                    if before is not None:
                        self._replaced.add(before)


def _checked_dict(data: object) -> dict:
    if not isinstance(data, dict) or not {ENV_ID, IS_EVAL} <= data.keys():
        raise BadRequest(f"a request for an action is a dict with '{ENV_ID}', '{IS_EVAL}' and the observation")
    for key, value in data.items():
        if type(value) is not np.ndarray and isinstance(value, (str, bytes, dict, list, type(None))):
            raise BadRequest(f"an observation holds arrays and numbers only; '{key}' is {type(value).__name__}")
    return data


def join(requests: list[ActRequest]) -> tuple[list[int], Batch]:
    """The environments and the observations of several requests as one batch."""
    if len(requests) == 1:
        return requests[0].env_ids, requests[0].obs
    env_ids = [env_id for request in requests for env_id in request.env_ids]
    return env_ids, join_rows([request.obs for request in requests])


def pad(obs: Batch, batch_size: int) -> Batch:
    """The rows filled up to the next multiple of `batch_size` with copies of row 0, so that shapes stay fixed."""
    rows = len(obs["is_first"])
    padding = -rows % batch_size
    if not padding:
        return obs
    return {k: np.concatenate([v, np.repeat(v[:1], padding, 0)]) for k, v in obs.items()}


def split_answers(requests: list[ActRequest], acts: Batch, is_last: np.ndarray) -> list[Batch]:
    """Each request's part of the actions, with `reset` where its episode is over."""
    answers, start = [], 0
    answer = {**acts, RESET: is_last}
    for request in requests:
        if request.is_single:
            answers.append({k: v[start] for k, v in answer.items()})
        else:
            answers.append({k: v[start : start + request.rows] for k, v in answer.items()})
        start += request.rows
    return answers


def newest_only(requests: list[ActRequest]) -> list[ActRequest]:
    """Without the requests for an environment that a later one in the list asks for too."""
    owners = {env_id: request for request in requests for env_id in request.env_ids}
    return [r for r in requests if all(owners[env_id] is r for env_id in r.env_ids)]
