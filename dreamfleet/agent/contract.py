"""What an agent is: the methods that the actor and the learner call, on any object that has them."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dreamfleet.base.arrays import Batch

Carry = Any

POLICY_FORMAT = 1  # of the exported function's arguments; the loader refuses others


class Agent(Protocol):
    """Acts and learns; the state of a sequence is passed in and returned as `carry`.

    A carry is a tree of tuples and dicts whose leaves are arrays with a leading batch dimension or lists with one entry
    per environment; `()` is a carry too. `policy` may return `outs` to be stored with each step. `train` may return
    empty `outs` and `metrics`; `outs['replay']` holds `stepid` and the arrays to write back to replay. `save` returns a
    tree of arrays, numbers, str, bytes and None.

    `init_policy` is called once, with the size of the inference batch, and `init_train` after `load`, if there is
    something to load. Before the first update `stream` is called for training, reports and evaluation; each result is
    iterated over once. A source has `save` and `load`; in threads of the agent's own it never ends or fails: it falls
    silent.

    Between two lines of metrics, numbers are averaged, arrays joined along their first axis, and of text the last is
    kept. With the attribute `reduces_by_key` set, the end of a number's key chooses (`/max`, `/min`, `/sum`, `/last`),
    and of arrays the last is kept.
    """

    def init_policy(self, batch_size: int) -> Carry: ...

    def init_train(self, batch_size: int) -> Carry: ...

    def init_report(self, batch_size: int) -> Carry: ...

    def policy(self, carry: Carry, obs: Batch, mode: str = "train") -> tuple[Carry, Batch, Batch]: ...

    def train(self, carry: Carry, data: Batch) -> tuple[Carry, dict[str, Any], dict[str, Any]]: ...

    def report(self, carry: Carry, data: Batch) -> tuple[Carry, dict[str, Any]]: ...

    def stream(self, source: Iterable[Batch]) -> Iterator[Batch]: ...

    def save(self) -> Any: ...

    def load(self, data: Any, regex: str | None = None) -> None: ...


def reduces_by_key(agent: Any) -> bool:
    """Whether the ends of keys say how an agent's metrics are reduced over an interval."""
    return getattr(agent, "reduces_by_key", False) is True


@runtime_checkable
class SlotAgent(Protocol):
    """The slot form of acting, for agents that keep the carries of all environments on their device.

    `slots` names the carry of each row; where `is_new` is set, the row starts from the initial carry instead. Slot
    `num_slots` is scratch space for padding rows. The actor makes one call at a time.
    """

    def init_slots(self, num_slots: int) -> None: ...

    def policy_slots(self, slots: np.ndarray, is_new: np.ndarray, obs: Batch, mode: str) -> tuple[Batch, Batch]: ...


@runtime_checkable
class GrowingSlotAgent(SlotAgent, Protocol):
    """Can get more slots between two calls; without this, environments beyond the first number are refused.

    The carries of the slots so far are kept. The scratch slot is again the one behind the last.
    """

    def grow_slots(self, num_slots: int) -> None: ...


@runtime_checkable
class SeededAgent(Protocol):
    """An agent that explores with random numbers of its own.

    It is called after `load`, with a number that no life of the agent process in this run has had: a policy that draws
    from what the options' seed alone gives would repeat its first actions after every restart and resume.
    """

    def seed_policy(self, number: int) -> None: ...


class ReplicaPlace(NamedTuple):
    """Where one of several processes meets the others that train the same agent."""

    replica: int  # its number, from 0
    replicas: int
    coordinator: str  # host:port where replica 0 serves the others
    listen: str = ""  # in replica 0, the host:port that it binds for that


@runtime_checkable
class ReplicatedAgent(Protocol):
    """An agent that several processes can train together, each on batches of its own, as if on one batch of all.

    `join_replicas` is called on the class, in every process before an agent is made there, with the options of the
    agent. `share_state` comes once in every process, after `load` in that of replica 0: all get its state, and are
    returned its numbers. `prepare_update` is called once before the first `train`, with the same arguments: what takes
    long, such as compiling, belongs there, as replicas in an update wait for each other only for a while. From then on
    all make the same calls of `train`.
    """

    @classmethod
    def join_replicas(cls, place: ReplicaPlace, options: Any) -> None: ...

    def share_state(self, numbers: tuple[float, ...]) -> tuple[float, ...]: ...

    def prepare_update(self, carry: Carry, data: Batch) -> None: ...


class PolicyProgram(NamedTuple):
    """A function that `jax.export` has serialised, and the arrays to call it with.

    It is called as `f(weights, carry, obs, seed, call)` and returns `(carry, acts)`: four dicts of arrays by name, of
    which all but the weights have a leading batch dimension of any size; `seed` and `call`, the number of the call, are
    uint32 scalars from which the randomness is derived. Rows of `obs` with `is_first` start from nothing.
    """

    serialized: bytes
    weights: dict[str, np.ndarray]
    carry: dict[str, np.ndarray]  # of one row that begins
    obs_keys: list[str]  # that the function takes, `is_first` among them
    seed: int
    platforms: tuple[str, ...]


@runtime_checkable
class ExportingAgent(Protocol):
    """An agent whose policy can do without it."""

    def export_policy(self, mode: str = "eval") -> PolicyProgram: ...
