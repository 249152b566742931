"""Numbers for the environments of workers that join a run, so that no two of them have the same."""

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dreamfleet.base.dimensions import MOST_ENVS
from dreamfleet.base.files import replace_file
from dreamfleet.errors import BadRequest
from dreamfleet.roles.protocol import Lease, LeaseRequest

log = logging.getLogger("dreamfleet.actor")

FILE = "leases.json"


class Held(NamedTuple):
    """What a worker was given."""

    envs: tuple[int, ...]
    is_eval: bool
    since: float


class Leases:
    """Gives out the lowest numbers, from `first` on, that nobody steps; for several threads.

    A worker that asks again has the same ones, as long as nobody else got them in between. Those of a worker that is
    silent for `timeout_s` are free, or before that if too many are given out. Every answer is another life, from which
    seeds are derived. Both are kept in `path`, so that they survive this process.
    """

    def __init__(
        self,
        path: Path,
        first: int,
        timeout_s: float,
        is_taken: Callable[[int, str], bool],
        age_s: Callable[[int, bool], float],
    ):
        """`is_taken(env_id, owner)`: by another owner; `age_s(env_id, is_eval)`: since it was stepped."""
        self._path, self._first, self._timeout_s = path, first, timeout_s
        self._is_taken, self._age_s = is_taken, age_s
        self._lock = threading.Lock()
        self._lives, self._leases = self._read()

    def give(self, data: Any, _: dict) -> dict:
        """Answers a worker that asks for numbers."""
        request = LeaseRequest.from_data(data)
        if not request.owner or not 0 < request.count <= MOST_ENVS:
            raise BadRequest(
                f"a worker names its owner and asks for 1 to {MOST_ENVS} environments, not {request.count}"
            )
        worker = (request.owner, request.worker)
        with self._lock:
            before = self._leases.pop(worker, None)
            envs = before.envs if before and self._still_fits(before, request) else self._find_free(request)
            for other in [other for other, held in self._leases.items() if not set(envs).isdisjoint(held.envs)]:
                del self._leases[other]
            self._make_room(request.count)
            self._leases[worker] = Held(envs, request.is_eval, time.monotonic())
            self._lives += 1
            self._write()
            return Lease(envs, self._lives).to_data()

    def _still_fits(self, held: Held, request: LeaseRequest) -> bool:
        is_same = (len(held.envs), held.is_eval) == (request.count, request.is_eval)
        is_free = min(held.envs) >= self._first  # the run may have more of its own than when these were given out
        return is_same and is_free and not any(self._is_taken(env_id, request.owner) for env_id in held.envs)

    def _find_free(self, request: LeaseRequest) -> tuple[int, ...]:
        leased = {
            env_id for held in self._leases.values() if self._idle_s(held) < self._timeout_s for env_id in held.envs
        }
        numbers = (n for n in itertools.count(self._first) if n not in leased and not self._is_taken(n, request.owner))
        return tuple(itertools.islice(numbers, request.count))

    def _make_room(self, count: int) -> None:
        """Ends the leases that have been idle for longest, if all of them are more than can be followed."""
        surplus = sum(len(held.envs) for held in self._leases.values()) + count - MOST_ENVS
        idle_first = sorted(self._leases, key=lambda worker: -self._idle_s(self._leases[worker])) if surplus > 0 else []
        for worker in idle_first:
            if surplus > 0:
                surplus -= len(self._leases.pop(worker).envs)

    def _idle_s(self, held: Held) -> float:
        """How long ago its worker was heard; each step counts."""
        ages_s = [self._age_s(env_id, held.is_eval) for env_id in held.envs]
        return min(*ages_s, time.monotonic() - held.since)

    def _read(self) -> tuple[int, dict[tuple[str, str], Held]]:
        try:
            kept = json.loads(self._path.read_bytes())
            now = time.monotonic()
            held = {(owner, worker): Held(tuple(envs), e, now) for owner, worker, envs, e in kept["leases"]}
            return int(kept["lives"]), held
        except FileNotFoundError:
            return 0, {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read (%s): workers get new numbers", self._path, error)
            return int(time.time()), {}  # beyond all lives that were counted

    def _write(self) -> None:
        leases = [[*worker, held.envs, held.is_eval] for worker, held in self._leases.items()]
        try:
            replace_file(self._path, json.dumps({"lives": self._lives, "leases": leases}))
        except OSError as error:  # a full disk: the next one is written again
            log.warning("%s cannot be written: %s", self._path, error)
