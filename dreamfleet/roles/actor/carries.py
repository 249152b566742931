"""The recurrent state of every environment that is being acted in, in dict form and in slot form."""

import copy
import logging
import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamfleet.agent.contract import Agent, Batch, GrowingSlotAgent, SlotAgent
from dreamfleet.base.dimensions import MOST_ENVS
from dreamfleet.errors import AgentError

log = logging.getLogger("dreamfleet.actor")

QUIET_S = 1.0  # with environments at work, somebody is heard within this time


class LastHeard:
    """When each environment was last heard of, unless a call for it is under way; for one thread at a time.

    Time in which nobody is heard does not count: while a policy compiles or replay takes nothing, all of them wait.
    """

    def __init__(self, timeout_s: float):
        self._timeout_s = timeout_s
        self._times: dict[int, float] = {}
        self._last = time.monotonic()  # that anybody was heard
        self._skipped_s = 0.0

    def begin(self, env_ids: Sequence[int]) -> None:
        """Notes the start of a call for these environments, which are not silent until its end."""
        self._hear()
        self._times.update(dict.fromkeys(env_ids, math.inf))

    def end(self, env_ids: Sequence[int]) -> None:
        now = self._hear()
        self._times.update(dict.fromkeys(env_ids, now))

    def take_stale(self) -> list[int]:
        """The environments that were silent for longer than the timeout, told once."""
        limit = min(time.monotonic(), self._last + QUIET_S) - self._skipped_s - self._timeout_s
        stale = [env_id for env_id, heard in self._times.items() if heard < limit]
        for env_id in stale:
            del self._times[env_id]
        return stale

    def _hear(self) -> float:
        now = time.monotonic()
        self._skipped_s += max(0.0, now - self._last - QUIET_S)
        self._last = now
        return now - self._skipped_s


class DictCarries:
    """Calls `agent.policy` with the carries of the rows' environments, kept here by environment.

    A carry is a tree of tuples and dicts; its leaves are arrays with a leading batch dimension or lists with one entry
    per environment, and are handed to the agent in the kind that `init_policy` returned. It is called once, with the
    size of the inference batch, which an agent may divide among its devices; every environment starts as its row 0.
    """

    def __init__(self, agent: Agent, timeout_s: float, limit: int = MOST_ENVS, batch_size: int = 1):
        self._agent = agent
        self.limit = limit
        self._structure = agent.init_policy(batch_size)
        self._initial = [leaf[0] for leaf in _leaves(self._structure)]
        self._carries: dict[int, list] = {}  # environment -> its entry of every leaf
        self._heard = LastHeard(timeout_s)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._carries)

    def make_room(self, env_ids: Sequence[int]) -> bool:
        """Whether there is room for the carries of these environments."""
        with self._lock:
            return len(self._carries) + len(set(env_ids) - self._carries.keys()) <= self.limit

    def policy(self, env_ids: Sequence[int], obs: Batch, mode: str) -> tuple[Batch, Batch]:
        """Acts for rows that may be more than the environments: the rows beyond are padding and repeat row 0."""
        padding = len(obs["is_first"]) - len(env_ids)
        with self._lock:
            self._heard.begin(env_ids)
            entries = [self._find(env_id) for env_id in env_ids]
        # A padding row is a copy of its own, so that agents that change a carry in place step each one once.
        entries += [copy.deepcopy(entries[0]) for _ in range(padding)]
        kinds = _leaves(self._structure)
        gathered = [_gather(kind, [entry[i] for entry in entries]) for i, kind in enumerate(kinds)]
        carry, acts, outs = self._agent.policy(_rebuild(self._structure, iter(gathered)), obs, mode)
        results = _leaves(carry)
        if (rows := [_count_rows(leaf) for leaf in results]) != [len(entries)] * len(kinds):
            expected = f"{len(kinds)} leaves, as init_policy does, of {len(entries)} rows"
            raise AgentError(f"policy: the carry has leaves of {rows} rows, expected {expected}")
        with self._lock:
            for row, env_id in enumerate(env_ids):
                self._carries[env_id] = [leaf[row] for leaf in results]
            self._heard.end(env_ids)
        return acts, outs

    def _find(self, env_id: int) -> list:
        entry = self._carries.get(env_id)
        # A copy of its own, since an agent may change what is in it.
        return copy.deepcopy(self._initial) if entry is None else entry

    def drop_stale(self) -> list[int]:
        """Forgets environments that have been silent for longer than the timeout; returns them."""
        with self._lock:
            stale = self._heard.take_stale()
            for env_id in stale:
                del self._carries[env_id]
        return stale


class SlotCarries:
    """Gives every environment a slot in the agent's own array of carries; one policy call at a time.

    There are as many slots as environments are expected. When more join, an agent that can gets twice as many.
    """

    def __init__(self, agent: SlotAgent, timeout_s: float, num_slots: int, limit: int = MOST_ENVS):
        self._agent = agent
        self._growing = agent if isinstance(agent, GrowingSlotAgent) else None
        self._num_slots = num_slots
        self.limit = max(limit, num_slots) if self._growing else num_slots
        self._slots: dict[int, int] = {}
        self._new: set[int] = set()  # environments whose slot was not used yet
        self._heard = LastHeard(timeout_s)
        self._free = list(range(num_slots))[::-1]
        self._lock = threading.RLock()
        agent.init_slots(num_slots)

    def __len__(self) -> int:
        return len(self._slots)

    def make_room(self, env_ids: Sequence[int]) -> bool:
        """Gives each of these environments a slot; none of them, if there are too few even with all that may be."""
        with self._lock:
            joining = [env_id for env_id in env_ids if env_id not in self._slots]
            if not joining:
                return True
            needed = len(self._slots) + len(joining)
            if needed > self.limit:
                return False
            if needed > self._num_slots:
                self._grow(needed)
            self._slots |= {env_id: self._free.pop() for env_id in joining}
            self._new.update(joining)
            return True

    def policy(self, env_ids: Sequence[int], obs: Batch, mode: str) -> tuple[Batch, Batch]:
        """Acts for rows that may be more than the environments: the rows beyond are padding in the scratch slot."""
        rows = len(obs["is_first"])
        with self._lock:
            if not self.make_room(env_ids):
                raise AgentError(f"no slots for {len(env_ids)} environments beside {len(self)}: at most {self.limit}")
            self._heard.begin(env_ids)
            slots = np.full(rows, self._num_slots, np.int32)
            slots[: len(env_ids)] = [self._slots[env_id] for env_id in env_ids]
            is_new = np.ones(rows, bool)
            is_new[: len(env_ids)] = [env_id in self._new for env_id in env_ids]
            self._new.difference_update(env_ids)
            answer = self._agent.policy_slots(slots, is_new, obs, mode)
            self._heard.end(env_ids)
            return answer

    def drop_stale(self) -> list[int]:
        """Forgets environments that have been silent for longer than the timeout; returns them."""
        with self._lock:
            stale = self._heard.take_stale()
            self._free += [self._slots.pop(env_id) for env_id in stale]
        return stale

    def _grow(self, needed: int) -> None:
        before = self._num_slots
        while self._num_slots < needed:
            self._num_slots = min(2 * self._num_slots, self.limit)
        log.info("%d environments: the policy is compiled again for %d instead of %d", needed, self._num_slots, before)
        assert self._growing is not None
        self._growing.grow_slots(self._num_slots)
        self._free = [*range(before, self._num_slots)][::-1] + self._free


def make_carries(agent: Any, timeout_s: float, num_slots: int, batch_size: int = 1) -> DictCarries | SlotCarries:
    """The slot form where the agent offers it, else the dict form."""
    if isinstance(agent, SlotAgent):
        return SlotCarries(agent, timeout_s, num_slots)
    return DictCarries(agent, timeout_s, max(MOST_ENVS, num_slots), batch_size)


def _leaves(tree: Any) -> list:
    if isinstance(tree, dict):
        # Sorted, since an agent may return the keys in another order than `init_policy`.
        return [leaf for key in sorted(tree) for leaf in _leaves(tree[key])]
    if isinstance(tree, tuple):
        return [leaf for child in tree for leaf in _leaves(child)]
    return [tree]


def _rebuild(tree: Any, leaves: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _rebuild(tree[key], leaves) for key in sorted(tree)}
    if isinstance(tree, tuple):
        children = [_rebuild(child, leaves) for child in tree]
        return type(tree)(*children) if hasattr(tree, "_fields") else tuple(children)
    return next(leaves)


def _count_rows(leaf: Any) -> int:
    return len(leaf) if isinstance(leaf, list) or getattr(leaf, "ndim", 0) else 0


def _gather(leaf: Any, entries: list) -> Any:
    return entries if isinstance(leaf, list) else np.stack(entries)
