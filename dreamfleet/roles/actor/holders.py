"""Which worker steps which environment, so that nobody acts in those of others."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dreamfleet.base.dimensions import MOST_ENVS
from dreamfleet.errors import BadRequest
from dreamfleet.roles.protocol import Hello

MOST_SESSIONS = 4096  # of workers that presented themselves, and of those that were replaced


class Worker(NamedTuple):
    """A process that steps environments; without an owner, one that has not presented itself."""

    session: str
    owner: str = ""
    host: str = ""
    is_eval: bool = False
    since: float = -math.inf  # when it first presented itself


class Holders:
    """The worker of every environment, for several threads.

    An environment is the worker's that first asks for an action; to have said hello takes nothing from others. From
    then on it is kept for its owner, until nobody has asked for `timeout_s`; those of the run's own `owner` always. Of
    two workers with the same owner the newer counts. Workers that have not presented themselves have none: the latest
    session among them counts, and a request without a session takes nothing over. `age_s` says how long ago an
    environment, of evaluation or not, asked; `room` is how many of training others may have.
    """

    def __init__(
        self,
        owner: str = "",
        timeout_s: float = 0.0,
        age_s: Callable[[int, bool], float] = lambda *_: 0.0,
        room: int | None = None,
    ):
        self._owner, self._timeout_s, self._age_s, self._room = owner, timeout_s, age_s, room
        self._presented: dict[str, Worker] = {}  # by session, the latest last
        self._workers: dict[int, Worker] = {}  # by environment, the latest last
        self._replaced: dict[str, None] = {}  # sessions that something was taken from, the latest last
        self._granted: dict[str, Sequence[int]] = {}  # by session, what was claimed and is as it was since
        self._lock = threading.Lock()

    def present(self, hello: Hello) -> None:
        """Lets a worker ask for its environments, or refuses it if one of them is somebody else's."""
        with self._lock:
            before = self._presented.pop(hello.session, None)
            since = before.since if before else time.monotonic()
            worker = Worker(hello.session, hello.owner, hello.host, hello.is_eval, since)
            self._check(hello.envs, worker)
            self._presented[worker.session] = worker
            _keep_latest(self._presented)

    def claim(self, env_ids: Sequence[int], session: str) -> None:
        """Gives environments to who asks for actions for them, or refuses it if one of them is somebody else's."""
        if self._granted.get(session) == env_ids:
            return
        with self._lock:
            worker = self._presented.get(session) or Worker(session)
            self._check(env_ids, worker)
            if session:
                self._give([i for i in env_ids if not self._is_of(i, session)], worker)
                self._granted[session] = env_ids
                _keep_latest(self._granted)

    def is_taken(self, env_id: int, owner: str) -> bool:
        """Whether an environment is not to be given to this owner, as another one steps it."""
        with self._lock:
            holder = self._workers.get(env_id)
            return holder is not None and holder.owner != owner and self._is_kept(env_id, holder)

    def others_than(self, owner: str) -> dict[int, Worker]:
        """Environments of workers that presented themselves, and that somebody else started."""
        with self._lock:
            return {i: worker for i, worker in self._workers.items() if worker.owner not in ("", owner)}

    def _check(self, env_ids: Sequence[int], worker: Worker) -> None:
        for env_id in env_ids:
            holder = None if self._is_of(env_id, worker.session) else self._workers.get(env_id)
            if worker.session in self._replaced or (holder and _is_newer(holder, worker)):
                raise BadRequest(f"environments {list(env_ids[:20])} were taken over by a newer process")
            if holder and holder.owner not in ("", worker.owner) and self._is_kept(env_id, holder):
                age_s = self._age_s(env_id, holder.is_eval)
                who = f"environment {env_id} is stepped on {holder.host}, which asked {age_s:.0f} s ago"
                remedy = "give this worker other numbers (--index), or stop the other one"
                raise BadRequest(f"{who}: {remedy}, which frees them after {self._timeout_s:g} s")

        self._check_room(env_ids, worker)

    def _check_room(self, env_ids: Sequence[int], worker: Worker) -> None:
        if self._room is None or worker.is_eval or worker.owner == self._owner:
            return
        asked = set(env_ids)
        others = sum(
            i not in asked and not each.is_eval and each.owner != self._owner and self._is_kept(i, each)
            for i, each in self._workers.items()
        )
        if others + len(asked) > self._room:
            what = f"replay.capacity has no room for sequences of {len(asked)} more environments beside"
            raise BadRequest(f"{what} {others} that have joined, of {self._room}: raise it, or join with fewer")

    def _is_kept(self, env_id: int, worker: Worker) -> bool:
        """Whether an environment is not to be given to another owner."""
        # A first request may wait for a policy that compiles.
        age_s = min(self._age_s(env_id, worker.is_eval), time.monotonic() - worker.since)
        return age_s < self._timeout_s or worker.owner == self._owner

    def _is_of(self, env_id: int, session: str) -> bool:
        holder = self._workers.get(env_id)
        return holder is not None and holder.session == session

    def _give(self, env_ids: Sequence[int], worker: Worker) -> None:
        self._make_room(len(set(env_ids) - self._workers.keys()))
        for env_id in env_ids:
            before = self._workers.pop(env_id, worker)
            self._workers[env_id] = worker
            if before.session != worker.session:
                self._replaced[before.session] = None
                self._granted.pop(before.session, None)
        _keep_latest(self._replaced)

    def _make_room(self, count: int) -> None:
        """Forgets those that nobody steps any more, if there are too many."""
        surplus = len(self._workers) + count - MOST_ENVS
        if surplus <= 0:
            return
        idle = [env_id for env_id, worker in self._workers.items() if not self._is_kept(env_id, worker)]
        if len(idle) < surplus:
            raise BadRequest(f"{count} environments are too many beside {len(self._workers)} others")
        for env_id in idle[: max(surplus, len(idle) // 2)]:
            self._granted.pop(self._workers.pop(env_id).session, None)


def _is_newer(holder: Worker, worker: Worker) -> bool:
    return bool(holder.owner) and holder.owner == worker.owner and holder.since > worker.since


def _keep_latest(sessions: dict) -> None:
    while len(sessions) > MOST_SESSIONS:
        del sessions[next(iter(sessions))]
