"""K environments stepped together, and what happens when one of them fails."""

import logging

import elements
import numpy as np
import pytest

from dreamfleet.envs import EnvGroup
from dreamfleet.errors import EnvError
from dreamfleet.testing import CountingEnv, expected_action


class Fragile(CountingEnv):
    """Fails in the way that `faults` names, at the given step of the given life."""

    def __init__(self, index: int, faults: dict[tuple[int, int], str], lives: list[int]):
        super().__init__(index)
        lives[index] += 1
        self.number = lives[index]
        self.faults = faults
        self.closed = 0

    def step(self, action):
        obs = super().step(action)
        fault = self.faults.get((self.number, int(obs["step"])))
        if fault == "raise":
            raise RuntimeError("the simulator fell over")
        if fault == "missing":
            del obs["episode"]
        if fault == "shape":
            obs["episode"] = np.zeros(3, np.int32)
        return obs

    def close(self):
        self.closed += 1
        if (self.number, -1) in self.faults:
            raise RuntimeError("does not close either")


class Fleet:
    """A group of Fragile environments of which number 1 fails."""

    def __init__(self, faults: dict[tuple[int, int], str]):
        self.lives = [0, 0, 0]
        self.made: list[Fragile] = []
        self.group = EnvGroup(lambda i: self.make(i, faults if i == 1 else {}), [0, 1, 2])
        self.acts = self.group.reset_actions()

    def make(self, index, faults) -> Fragile:
        self.made.append(Fragile(index, faults, self.lives))
        return self.made[-1]

    def step(self) -> dict[str, np.ndarray]:
        obs = self.group.step(self.acts)
        self.acts = {"action": expected_action(obs["env"], obs["step"]), "reset": obs["is_last"].copy()}
        return {k: v.copy() for k, v in obs.items()}


def test_every_environment_gets_its_own_action_and_row():
    fleet = Fleet({})
    for step in range(11):
        obs = fleet.step()
        assert obs["env"].tolist() == [0, 1, 2]
        assert obs["step"].tolist() == [step] * 3
        assert obs["is_first"].tolist() == [step == 0] * 3
    assert obs["is_last"].all()
    assert fleet.step()["episode"].tolist() == [1, 1, 1]
    assert fleet.group.rebuilds == 0


def test_observations_have_the_types_of_the_spaces():
    obs = Fleet({}).step()
    spaces = CountingEnv().obs_space
    assert {k: (v.dtype, v.shape) for k, v in obs.items()} == {k: (s.dtype, (3,)) for k, s in spaces.items()}


@pytest.mark.parametrize("fault", ["raise", "missing", "shape"])
def test_an_environment_that_fails_is_rebuilt_alone_and_logged(fault, caplog):
    fleet = Fleet({(1, 3): fault})
    with caplog.at_level(logging.ERROR):
        history = [fleet.step() for _ in range(6)]
    assert [obs["step"].tolist() for obs in history[2:]] == [[2, 2, 2], [3, 0, 3], [4, 1, 4], [5, 2, 5]]
    assert history[3]["is_first"].tolist() == [False, True, False]
    assert fleet.lives == [1, 2, 1] and fleet.group.rebuilds == 1
    assert [env.closed for env in fleet.made] == [0, 1, 0, 0]
    (record,) = caplog.records
    assert "environment 1" in record.getMessage()
    assert record.exc_info and record.exc_info[1] is not None
    expected = {"raise": "fell over", "missing": "'episode'", "shape": "'episode'"}[fault]
    assert expected in str(record.exc_info[1])


def test_an_environment_that_fails_again_at_once_is_beyond_help():
    fleet = Fleet({(1, 3): "raise", (2, 0): "raise"})
    for _ in range(3):
        fleet.step()
    with pytest.raises(RuntimeError, match="fell over"):
        fleet.step()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("missing", r"environment 1: the observation has no 'episode'; it has \['env'"),
        ("shape", r"environment 1: observation 'episode' has shape \(3,\), but its space says \(\)"),
    ],
)
def test_an_observation_that_is_always_wrong_is_named(fault, message):
    fleet = Fleet({(1, 0): fault, (2, 0): fault})
    with pytest.raises(EnvError, match=message):
        fleet.step()


def test_an_environment_that_does_not_close_is_replaced_all_the_same(caplog):
    fleet = Fleet({(1, 1): "raise", (1, -1): "close"})
    history = [fleet.step() for _ in range(2)]
    assert history[1]["step"].tolist() == [1, 0, 1]
    assert any("raised on close" in record.getMessage() for record in caplog.records)


def test_an_environment_that_fails_a_second_time_later_is_rebuilt_again():
    fleet = Fleet({(1, 3): "raise", (2, 1): "raise"})
    for _ in range(7):
        obs = fleet.step()
    assert fleet.group.rebuilds == 2
    assert obs["step"].tolist() == [6, 2, 6]


def test_close_closes_all_even_if_one_does_not(caplog):
    fleet = Fleet({(1, -1): "close"})
    fleet.group.close()
    assert [env.closed for env in fleet.made] == [1, 1, 1]
    assert any("environment 1 raised on close" in record.getMessage() for record in caplog.records)


def test_buffers_are_reused_until_they_are_renewed():
    fleet = Fleet({})
    first = fleet.group.step(fleet.acts)
    assert fleet.group.step(fleet.acts) is first
    before = {k: v.copy() for k, v in first.items()}
    fleet.group.use_buffers(fleet.group.make_buffers())
    second = fleet.group.step(fleet.acts)
    assert all(second[k] is not first[k] for k in first)
    assert all((first[k] == before[k]).all() for k in first)
    assert second["episode"].tolist() == [2, 2, 2]


def test_reset_actions_start_new_episodes_everywhere():
    fleet = Fleet({})
    for _ in range(4):
        fleet.step()
    fleet.acts = fleet.group.reset_actions()
    assert fleet.acts["action"].shape == (3,) and fleet.acts["reset"].all()
    obs = fleet.step()
    assert obs["is_first"].all() and obs["episode"].tolist() == [1, 1, 1]


def test_spaces_that_break_the_contract_are_refused_before_the_first_step():
    class NoReward(CountingEnv):
        def __init__(self):
            super().__init__()
            self.obs_space = {k: v for k, v in self.obs_space.items() if k != "reward"}

    class OtherReward(CountingEnv):
        def __init__(self):
            super().__init__()
            self.obs_space["reward"] = elements.Space(np.float64)

    for make in (NoReward, OtherReward):
        with pytest.raises(EnvError, match="reward"):
            EnvGroup(lambda _, make=make: make(), [0])
