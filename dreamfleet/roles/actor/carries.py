"""The recurrent state of every environment that is being acted in, in dict form and in slot form."""

import copy
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamfleet.agent.contract import Agent, Batch, SlotAgent
from dreamfleet.errors import AgentError, ConfigError


class DictCarries:
    """Calls `agent.policy` with the carries of the rows' environments, kept here by environment.

    A carry is a tree of tuples and dicts; its leaves are arrays with a leading batch dimension or lists with one entry
    per environment, and are handed to the agent in the kind that `init_policy` returned.
    """

    def __init__(self, agent: Agent, timeout_s: float):
        self._agent = agent
        self._timeout_s = timeout_s
        self._structure = agent.init_policy(1)
        self._carries: dict[int, list] = {}  # environment -> its entry of every leaf
        self._seen: dict[int, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._carries)

    def policy(self, env_ids: Sequence[int], obs: Batch, mode: str) -> tuple[Batch, Batch]:
        """Acts for rows that may be more than the environments: the rows beyond are padding and repeat row 0."""
        padding = len(obs["is_first"]) - len(env_ids)
        with self._lock:
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
        now = time.monotonic()
        with self._lock:
            for row, env_id in enumerate(env_ids):
                self._carries[env_id] = [leaf[row] for leaf in results]
                self._seen[env_id] = now
        return acts, outs

    def _find(self, env_id: int) -> list:
        entry = self._carries.get(env_id)
        return _entries(self._agent.init_policy(1)) if entry is None else entry

    def drop_stale(self) -> list[int]:
        """Forgets environments that have been silent for longer than the timeout; returns them."""
        limit = time.monotonic() - self._timeout_s
        with self._lock:
            stale = [env_id for env_id, seen in self._seen.items() if seen < limit]
            for env_id in stale:
                self._carries.pop(env_id)
                self._seen.pop(env_id)
        return stale


class SlotCarries:
    """Gives every environment a slot in the agent's own array of carries; one policy call at a time."""

    def __init__(self, agent: SlotAgent, timeout_s: float, num_slots: int):
        self._agent = agent
        self._timeout_s = timeout_s
        self._num_slots = num_slots
        self._slots: dict[int, int] = {}
        self._seen: dict[int, float] = {}
        self._free = list(range(num_slots))[::-1]
        self._lock = threading.Lock()
        agent.init_slots(num_slots)

    def __len__(self) -> int:
        return len(self._slots)

    def policy(self, env_ids: Sequence[int], obs: Batch, mode: str) -> tuple[Batch, Batch]:
        """Acts for rows that may be more than the environments: the rows beyond are padding in the scratch slot."""
        if len(env_ids) > self._num_slots:
            raise ConfigError(
                "envs", self._num_slots, f"gives too few slots for a batch of {len(env_ids)} environments", "raise it"
            )
        rows = len(obs["is_first"])
        slots = np.full(rows, self._num_slots, np.int32)
        is_new = np.ones(rows, bool)
        now = time.monotonic()
        with self._lock:
            # First, so that none of this batch makes room for another of it.
            self._seen |= {env_id: now for env_id in env_ids if env_id in self._slots}
            for row, env_id in enumerate(env_ids):
                is_new[row] = env_id not in self._slots
                if is_new[row]:
                    self._slots[env_id] = self._take_slot()
                slots[row] = self._slots[env_id]
                self._seen[env_id] = now
            return self._agent.policy_slots(slots, is_new, obs, mode)

    def drop_stale(self) -> list[int]:
        """Forgets environments that have been silent for longer than the timeout; returns them."""
        limit = time.monotonic() - self._timeout_s
        with self._lock:
            stale = [env_id for env_id, seen in self._seen.items() if seen < limit]
            for env_id in stale:
                self._release(env_id)
        return stale

    def _take_slot(self) -> int:
        if not self._free:  # more environments than expected: the one that was silent the longest makes room
            self._release(min(self._seen, key=self._seen.__getitem__))
        return self._free.pop()

    def _release(self, env_id: int) -> None:
        self._free.append(self._slots.pop(env_id))
        self._seen.pop(env_id)


def make_carries(agent: Any, timeout_s: float, num_slots: int) -> DictCarries | SlotCarries:
    """The slot form where the agent offers it, else the dict form."""
    if isinstance(agent, SlotAgent):
        return SlotCarries(agent, timeout_s, num_slots)
    return DictCarries(agent, timeout_s)


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


def _entries(carry: Any) -> list:
    return [leaf[0] for leaf in _leaves(carry)]


def _count_rows(leaf: Any) -> int:
    return len(leaf) if isinstance(leaf, list) or getattr(leaf, "ndim", 0) else 0


def _gather(leaf: Any, entries: list) -> Any:
    return entries if isinstance(leaf, list) else np.stack(entries)
