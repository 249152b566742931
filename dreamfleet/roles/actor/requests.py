"""Requests for actions: checked, gathered into one batch, and answered."""

import re

import numpy as np

from dreamfleet.agent.contract import Batch
from dreamfleet.base.keys import is_logged, without_logs
from dreamfleet.errors import BadRequest
from dreamfleet.roles.actor.holders import Holders
from dreamfleet.roles.hello import check_spaces
from dreamfleet.roles.protocol import ENV_ID, IS_EVAL, RESET, ActSession
from dreamfleet.roles.transitions import join_rows

FLAGS = ("is_first", "is_last", "is_terminal")
MOST_SPECS = 4096  # that are remembered
MOST_PRESENTED = 64
DTYPES = {np.dtype(kind).name: np.dtype(kind) for kind in ("?", *np.typecodes["AllInteger"], *"efd")}
_SPACE = re.compile(r"(\w+)\(([\d, ]{0,64})\)")

Spec = dict[str, tuple[np.dtype, tuple[int, ...]]]  # key -> dtype and shape


class ActRequest:
    """Observations of K environments from one message, with a leading K."""

    def __init__(self, env_ids: list[int], is_eval: bool, is_single: bool, obs: Batch):
        self.env_ids, self.is_eval, self.is_single, self.obs = env_ids, is_eval, is_single, obs
        self.rows = len(env_ids)
        self.group = is_eval  # training and evaluation are batched apart
        self.spec: Spec = {}


class RequestParser:
    """Turns wire data into requests and refuses what is not an observation of the run's environments.

    What these look like says the agent, else the first request, which has to be as a worker presented it, if any did.
    Only `log/` keys may differ from one process to another.
    """

    def __init__(self, obs_space: dict | None = None, holders: Holders | None = None):
        self._expected: dict[bool, Spec] = {}  # by is_eval, without logs
        self._presented: dict[bool, list[Spec]] = {False: [], True: []}  # while there was no request yet
        # By is_eval, session and rows: dtypes and shapes of the last request as they came, and what it fits, with logs.
        self._specs: dict[tuple[bool, str, int], tuple[Spec, Spec]] = {}
        self._same: dict[tuple, Spec] = {}  # equal ones are one object, so that they are quickly compared
        spaces = {k: (np.dtype(s.dtype), tuple(s.shape)) for k, s in (obs_space or {}).items()}
        self._spaces = without_logs(spaces)
        self._holders = Holders() if holders is None else holders

    def expect(self, is_eval: bool, obs_space: dict[str, str], task: str) -> None:
        """Refuses a worker whose observations are not those of the run; without any so far, these may be.

        They are not before something was acted on: who only presents itself must not rule out others.
        """
        described = {key: f"{dtype.name}{shape}" for key, (dtype, shape) in self._expected.get(is_eval, {}).items()}
        if described:
            check_spaces("observations", obs_space, described, task)
        else:
            expected = {key: _read_space(key, text) for key, text in obs_space.items()}
            _check_flags(expected)
            others = [spec for spec in self._presented[is_eval] if spec != expected]
            self._presented[is_eval] = [*others[1 - MOST_PRESENTED :], expected]

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
        session = ActSession.read(meta)
        self._check_spec(request, session)
        self._holders.claim(request.env_ids, session)
        return request

    def _check_spec(self, request: ActRequest, session: str) -> None:
        key = request.is_eval, session, request.rows
        given = {k: (v.dtype, v.shape) for k, v in request.obs.items()}
        layout, request.spec = self._specs.get(key, ({}, {}))
        if given != layout:
            if len(self._specs) > MOST_SPECS:  # of processes that are gone
                self._specs.clear()
                self._same.clear()
            request.spec = self._find_spec(request)
            self._specs[key] = given, request.spec

    def _find_spec(self, request: ActRequest) -> Spec:
        """What the requests of one process look like: as expected of all, with logs of its own."""
        given = {k: (v.dtype, v.shape[1:]) for k, v in request.obs.items()}
        logs = {k: v for k, v in given.items() if is_logged(k)}
        rest = {k: v for k, v in given.items() if k not in logs}
        expected = self._expected.get(request.is_eval)
        if expected is None:
            _check_flags(rest)
            own = {k: v for k, v in rest.items() if k in (*FLAGS, "reward")}
            expected = own | self._spaces if self._spaces else self._find_presented(request.is_eval, rest)
        if rest.keys() != expected.keys():
            missing, extra = sorted(expected.keys() - rest.keys()), sorted(rest.keys() - expected.keys())
            raise BadRequest(f"the observation has other keys than expected: missing {missing}, extra {extra}")
        for key, (dtype, shape) in (expected | logs).items():
            value, wanted = request.obs[key], (request.rows, *shape)
            if value.dtype != dtype or value.shape != wanted or value.dtype.kind not in "biuf":
                raise BadRequest(
                    f"observation '{key}' is {value.dtype.name}{value.shape}, expected {dtype.name}{wanted}"
                )
        self._expected[request.is_eval] = expected  # not before it was kept: a bad first one must not rule out others
        spec = expected | logs
        return self._same.setdefault(tuple(sorted((k, d.str, shape) for k, (d, shape) in spec.items())), spec)

    def _find_presented(self, is_eval: bool, given: Spec) -> Spec:
        presented = self._presented[is_eval]
        return given if not presented or given in presented else presented[-1]


def _check_flags(spec: Spec) -> None:
    """Refuses observations without what every environment has to tell."""
    for key in (*FLAGS, "reward"):
        dtype, shape = spec.get(key, (None, ()))
        if dtype is None or shape or dtype.kind != ("f" if key == "reward" else "b"):
            raise BadRequest(f"the observation needs '{key}' as {'a float' if key == 'reward' else 'a bool'}")


def _read_space(key: str, text: str) -> tuple[np.dtype, tuple[int, ...]]:
    """Dtype and shape from what `describe_spaces` made of them."""
    found = _SPACE.fullmatch(text)
    dtype = DTYPES.get(found[1]) if found else None
    if found and dtype:
        return dtype, tuple(int(size) for size in found[2].replace(" ", "").split(",") if size)
    raise BadRequest(f"the space of '{key}' is {text[:64]!r}, expected a dtype and a shape as in float32(64, 64)")


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
    first = requests[0].spec
    if len({id(request.spec) for request in requests}) == 1:
        return env_ids, join_rows([request.obs for request in requests])
    # Processes whose logs differ: those that all have.
    common = [k for k, kind in first.items() if all(request.spec.get(k) == kind for request in requests)]
    return env_ids, join_rows([{k: request.obs[k] for k in common} for request in requests])


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
    env_ids = [env_id for request in requests for env_id in request.env_ids]
    if len(set(env_ids)) == len(env_ids):
        return requests
    owners = {env_id: request for request in requests for env_id in request.env_ids}
    return [r for r in requests if all(owners[env_id] is r for env_id in r.env_ids)]
