"""Carries by environment: every kind of leaf, padding, time-outs, and slots."""

from typing import NamedTuple

import numpy as np
import pytest

from dreamfleet.errors import AgentError
from dreamfleet.roles.actor.carries import DictCarries, SlotCarries, make_carries
from dreamfleet.testing import CountingAgent, CountingEnv

NEVER_S = 1000.0
AT_ONCE_S = -1.0


class State(NamedTuple):
    deter: np.ndarray
    names: list


def make_carry(kind: str, batch_size: int):
    counts = np.zeros((batch_size, 2), np.float32)
    histories = [[] for _ in range(batch_size)]
    return {
        "none": (),
        "array": counts,
        "list": histories,
        "tuple": (counts, {"b": histories, "a": (counts.astype(np.int64),)}),
        "namedtuple": {"state": State(counts, histories), "scalar": np.zeros(batch_size, np.int32)},
    }[kind]


def advance(tree, names: list):
    """The carry after a step, with dict keys in another order than before."""
    if isinstance(tree, dict):
        return {k: advance(tree[k], names) for k in reversed(list(tree))}
    if isinstance(tree, tuple):
        children = [advance(child, names) for child in tree]
        return type(tree)(*children) if isinstance(tree, State) else tuple(children)
    if isinstance(tree, list):
        assert len(tree) == len(names)
        return [[*history, name] for history, name in zip(tree, names, strict=True)]
    assert isinstance(tree, np.ndarray) and len(tree) == len(names)
    return tree + np.array(names).reshape(-1, *[1] * (tree.ndim - 1)).astype(tree.dtype)


class SummingAgent:
    """Adds the number of its environment to every leaf, and keeps what it was called with."""

    def __init__(self, kind: str):
        self.kind = kind
        self.seen = []
        self.modes = []

    def init_policy(self, batch_size):
        return make_carry(self.kind, batch_size)

    def policy(self, carry, obs, mode="train"):
        names = obs["name"].tolist()
        self.seen.append(carry)
        self.modes.append(mode)
        return advance(carry, names), {"action": obs["name"] * 2}, {"extra": obs["name"] * 3}


def make_obs(names: list, rows: int | None = None) -> dict:
    padded = names + [names[0]] * ((rows or len(names)) - len(names))
    return {"name": np.array(padded), "is_first": np.zeros(len(padded), bool)}


@pytest.mark.parametrize("kind", ["none", "array", "list", "tuple", "namedtuple"])
def test_every_environment_gets_its_own_carry_in_the_kind_of_the_first(kind):
    agent = SummingAgent(kind)
    carries = DictCarries(agent, NEVER_S)
    rounds = [[1, 2, 3], [3, 1], [2], [4, 1, 3, 2]]
    for names in rounds:
        acts, outs = carries.policy(names, make_obs(names), "train")
        assert acts["action"].tolist() == [2 * name for name in names]
        assert outs["extra"].tolist() == [3 * name for name in names]
    turns = {name: [i for i, names in enumerate(rounds) if name in names] for name in (1, 2, 3, 4)}
    for turn, (names, carry) in enumerate(zip(rounds, agent.seen, strict=True)):
        before = [turns[name].index(turn) for name in names]  # steps that each has made
        check_carry(carry, make_carry(kind, 1), names, before)
    assert len(carries) == 4


def check_carry(carry, like, names, before):
    assert type(carry) is type(like)
    if isinstance(like, dict):
        assert carry.keys() == like.keys()
        for key in like:
            check_carry(carry[key], like[key], names, before)
    elif isinstance(like, tuple):
        for child, other in zip(carry, like, strict=True):
            check_carry(child, other, names, before)
    elif isinstance(like, list):
        assert carry == [[name] * count for name, count in zip(names, before, strict=True)]
    else:
        assert carry.dtype == like.dtype and carry.shape == (len(names), *like.shape[1:])
        expected = np.array([name * count for name, count in zip(names, before, strict=True)])
        assert (carry == expected.reshape(-1, *[1] * (carry.ndim - 1))).all()


@pytest.mark.parametrize("kind", ["array", "list", "tuple"])
def test_the_first_carry_is_asked_for_once_with_the_size_of_the_batch(kind):
    sizes = []

    class Divided(SummingAgent):
        def init_policy(self, batch_size):
            sizes.append(batch_size)
            return super().init_policy(batch_size)

    carries = DictCarries(Divided(kind), NEVER_S, batch_size=2)
    for names in ([1, 2], [3, 4], [2, 1]):
        carries.policy(names, make_obs(names), "train")
    assert sizes == [2]


def test_modes_reach_the_agent():
    agent = SummingAgent("array")
    carries = DictCarries(agent, NEVER_S)
    carries.policy([0], make_obs([0]), "train")
    carries.policy([1], make_obs([1]), "eval")
    assert agent.modes == ["train", "eval"]


@pytest.mark.parametrize("kind", ["none", "array", "list", "tuple", "namedtuple"])
def test_padding_repeats_row_0_and_leaves_no_trace(kind):
    agent = SummingAgent(kind)
    carries = DictCarries(agent, NEVER_S)
    for turn in range(3):
        acts, _ = carries.policy([7, 8], make_obs([7, 8], rows=5), "train")
        assert acts["action"].tolist() == [14, 16, 14, 14, 14]  # the caller drops the rows that nobody asked for
        check_carry(agent.seen[-1], make_carry(kind, 1), [7, 8, 7, 7, 7], [turn] * 5)
    assert len(carries) == 2


def test_an_agent_that_changes_a_list_carry_in_place_steps_each_environment_once():
    class InPlace(SummingAgent):
        def policy(self, carry, obs, mode="train"):
            for history, name in zip(carry, obs["name"].tolist(), strict=True):
                history.append(name)
            return carry, {"action": np.array([len(history) for history in carry])}, {}

    carries = DictCarries(InPlace("list"), NEVER_S)
    for turn in range(1, 4):
        acts, _ = carries.policy([7, 8], make_obs([7, 8], rows=4), "train")
        assert acts["action"].tolist() == [turn] * 4


def test_silent_environments_are_dropped_and_start_again():
    agent = SummingAgent("array")
    carries = DictCarries(agent, AT_ONCE_S)
    carries.policy([1, 2], make_obs([1, 2]), "train")
    assert sorted(carries.drop_stale()) == [1, 2]
    assert len(carries) == 0 and carries.drop_stale() == []
    carries.policy([1], make_obs([1]), "train")
    assert (agent.seen[-1] == 0).all()


def test_environments_that_were_heard_of_are_kept():
    agent = SummingAgent("array")
    carries = DictCarries(agent, NEVER_S)
    carries.policy([1], make_obs([1]), "train")
    assert carries.drop_stale() == []
    carries.policy([1], make_obs([1]), "train")
    assert (agent.seen[-1] == 1).all()


@pytest.mark.parametrize("kind", ["array", "list", "none"])
def test_the_counting_agent_agrees(kind):
    agent = CountingAgent(kind)
    carries = DictCarries(agent, NEVER_S)
    envs = {index: CountingEnv(index, length=4 + index) for index in range(3)}
    last = {index: {"action": 0, "reset": True} for index in envs}
    for turn in range(40):
        names = [[0, 1, 2], [2, 0], [1]][turn % 3]
        obs = [envs[name].step(last[name]) for name in names]
        inputs = {k: np.stack([o[k] for o in obs] + [obs[0][k]]) for k in obs[0] if not k.startswith("log/")}
        acts, _ = carries.policy(names, inputs, "train")
        for row, name in enumerate(names):
            last[name] = {"action": acts["action"][row], "reset": obs[row]["is_last"]}


class SlotAgent:
    """Keeps how often each slot was stepped; the answer to a row is that count, and the slot."""

    def __init__(self):
        self.calls = []

    def init_slots(self, num_slots):
        self.num_slots = num_slots
        self.counts = np.full(num_slots + 1, -1000)

    def policy_slots(self, slots, is_new, obs, mode):
        assert slots.dtype == np.int32 and is_new.dtype == bool
        assert len(slots) == len(is_new) == len(obs["is_first"])
        real = slots[slots < self.num_slots]
        assert len(set(real.tolist())) == len(real), "two rows share a slot"
        self.calls.append((slots.tolist(), is_new.tolist(), mode))
        counts = np.where(is_new, 0, self.counts[slots]) + 1
        self.counts[slots] = counts
        return {"action": counts}, {"slot": slots}


@pytest.fixture
def slot_agent() -> SlotAgent:
    return SlotAgent()


def act(carries: SlotCarries, names: list, rows: int | None = None) -> list[int]:
    acts, _ = carries.policy(names, make_obs(names, rows), "train")
    return acts["action"].tolist()


def test_the_form_is_chosen_by_what_the_agent_offers(slot_agent):
    carries = make_carries(slot_agent, NEVER_S, 3)
    assert isinstance(carries, SlotCarries) and slot_agent.num_slots == 3
    assert isinstance(make_carries(SummingAgent("array"), NEVER_S, 3), DictCarries)


def test_slots_stay_with_their_environments(slot_agent):
    carries = SlotCarries(slot_agent, NEVER_S, 4)
    assert act(carries, [10, 20]) == [1, 1]
    assert act(carries, [20, 30]) == [2, 1]
    assert act(carries, [30, 10, 20]) == [2, 2, 3]
    slots = [
        dict(zip(names, call[0], strict=True))
        for names, call in zip([[10, 20], [20, 30], [30, 10, 20]], slot_agent.calls, strict=True)
    ]
    assert slots[0][20] == slots[1][20] == slots[2][20]
    assert slots[0][10] == slots[2][10] and slots[1][30] == slots[2][30]
    assert [call[1] for call in slot_agent.calls] == [[True, True], [False, True], [False, False, False]]
    assert len(carries) == 3


def test_padding_goes_to_the_scratch_slot(slot_agent):
    carries = SlotCarries(slot_agent, NEVER_S, 2)
    act(carries, [10, 20], rows=5)
    slots, is_new, mode = slot_agent.calls[-1]
    assert slots[2:] == [2, 2, 2] and is_new[2:] == [True, True, True] and mode == "train"
    assert act(carries, [10, 20], rows=5)[:2] == [2, 2]


class GrowingAgent(SlotAgent):
    def grow_slots(self, num_slots):
        counts = self.counts
        self.init_slots(num_slots)
        self.counts[: len(counts) - 1] = counts[:-1]


def test_more_environments_than_slots_get_more_slots_and_nobody_loses_its_carry():
    agent = GrowingAgent()
    carries = SlotCarries(agent, NEVER_S, 2)
    assert act(carries, [10, 20]) == [1, 1]
    assert act(carries, [30, 10]) == [1, 2]
    assert agent.num_slots == 4
    assert act(carries, [20, 40]) == [2, 1]
    assert agent.num_slots == 4
    assert act(carries, [50, 60, 70, 80, 90, 10], rows=8)[:6] == [1, 1, 1, 1, 1, 3]
    assert agent.num_slots == 16
    assert agent.calls[-1][0][6:] == [16, 16], "padding goes to the scratch slot, which is the last"
    assert act(carries, [10, 20, 30, 40, 90]) == [4, 3, 2, 2, 2]
    assert len(carries) == 9


def test_slots_grow_up_to_the_limit_and_the_surplus_is_refused():
    agent = GrowingAgent()
    carries = SlotCarries(agent, NEVER_S, 2, limit=3)
    act(carries, [10, 20])
    assert not carries.make_room([30, 40])
    assert carries.make_room([30]) and agent.num_slots == 3
    assert not carries.make_room([40])
    assert act(carries, [10, 20, 30]) == [2, 2, 1]


def test_an_agent_that_cannot_grow_keeps_its_slots_for_those_that_came_first(slot_agent):
    carries = SlotCarries(slot_agent, NEVER_S, 2)
    act(carries, [10, 20])
    assert not carries.make_room([30])
    with pytest.raises(AgentError, match="no slots for 3 environments beside 2: at most 2"):
        act(carries, [10, 20, 30])
    assert act(carries, [10, 20]) == [2, 2]


def test_carries_in_dicts_have_a_limit_too():
    carries = DictCarries(SummingAgent("array"), NEVER_S, limit=2)
    carries.policy([1, 2], make_obs([1, 2]), "train")
    assert carries.make_room([2, 1]) and not carries.make_room([3])


class Clock:
    """A time that passes when the test says so."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


TIMEOUT_S = 60.0


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("dreamfleet.roles.actor.carries.time", clock)
    return clock


MAKE = {
    "dict": lambda agent: DictCarries(agent("array"), TIMEOUT_S),
    "slots": lambda agent: SlotCarries(agent(), TIMEOUT_S, 4),
}
AGENTS = {"dict": SummingAgent, "slots": SlotAgent}


@pytest.mark.parametrize("form", MAKE)
def test_only_silence_beside_others_that_are_heard_makes_an_environment_stale(clock, form):
    carries = MAKE[form](AGENTS[form])
    carries.policy([1, 2], make_obs([1, 2]), "train")
    for _ in range(int(TIMEOUT_S)):
        assert carries.drop_stale() == []
        clock.now += 1.0
        carries.policy([1], make_obs([1]), "train")
    clock.now += 0.5
    assert carries.drop_stale() == [2]


@pytest.mark.parametrize("form", MAKE)
def test_environments_that_wait_for_a_policy_that_compiles_are_not_stale(clock, form):
    dropped = []

    class Compiling(AGENTS[form]):
        def policy(self, *args):
            self._compile()
            return super().policy(*args)

        def policy_slots(self, *args):
            self._compile()
            return super().policy_slots(*args)

        def _compile(self):
            clock.now += 10 * TIMEOUT_S
            dropped.extend(carries.drop_stale())

    carries = MAKE[form](Compiling)
    for env_ids in ([1, 2], [3], [1], [2, 3]):
        carries.policy(env_ids, make_obs(env_ids), "train")
        dropped.extend(carries.drop_stale())
    assert dropped == []


def test_an_environment_that_waits_for_its_actions_beside_others_that_get_theirs_is_not_stale(clock):
    """In dict form, where calls may be made beside each other."""
    dropped = []

    class SlowOnce(SummingAgent):
        is_slow = False

        def policy(self, *args):
            is_slow, self.is_slow = self.is_slow, False
            for _ in range(2 * int(TIMEOUT_S) * is_slow):
                clock.now += 1.0
                carries.policy([2], make_obs([2]), "train")
                dropped.extend(carries.drop_stale())
            return super().policy(*args)

    agent = SlowOnce("array")
    carries = DictCarries(agent, TIMEOUT_S)
    carries.policy([1, 2], make_obs([1, 2]), "train")
    agent.is_slow = True
    carries.policy([1], make_obs([1]), "train")
    assert dropped == []


@pytest.mark.parametrize("form", MAKE)
def test_environments_that_wait_while_nothing_is_asked_for_are_not_stale(clock, form):
    carries = MAKE[form](AGENTS[form])
    carries.policy([1, 2], make_obs([1, 2]), "train")
    clock.now += 10 * TIMEOUT_S  # as when replay takes no rows, or the whole machine is paused
    assert carries.drop_stale() == []
    carries.policy([1], make_obs([1]), "train")
    assert carries.drop_stale() == []


def test_slots_of_silent_environments_are_used_again(slot_agent):
    carries = SlotCarries(slot_agent, AT_ONCE_S, 2)
    act(carries, [10, 20])
    assert sorted(carries.drop_stale()) == [10, 20]
    assert len(carries) == 0
    assert act(carries, [30, 10]) == [1, 1]
    assert SlotCarries(slot_agent, NEVER_S, 2).drop_stale() == []
