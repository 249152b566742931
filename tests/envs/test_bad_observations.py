"""Observations that would spoil training are the environment's failure: it is rebuilt, and they go nowhere."""

import numpy as np
import pytest

from dreamfleet.envs import EnvGroup
from dreamfleet.errors import EnvError
from dreamfleet.testing import Probe


class Spoilt(Probe):
    """Its first life shows something else from the third step on."""

    lives = 0

    def __init__(self, key: str = "", value=None):
        self.spaces = {**self.spaces, "count": self.actions["action"], "log/note": Probe.spaces["vector"]}
        super().__init__()
        self._key, self._value = key, value
        self._time = 0
        type(self).lives += 1
        self._life = type(self).lives

    def begin(self) -> dict:
        return self._show()

    def move(self, action: dict) -> tuple[dict, float, bool]:
        self._time += 1
        return self._show(), 1.0, self._time % 10 == 0

    def step(self, action: dict) -> dict:
        obs = super().step(action)
        return {**obs, self._key: self._value} if self._time >= 3 and self._life == 1 and self._key else obs

    def _show(self) -> dict:
        return {"vector": np.ones(2, np.float32), "count": np.int32(1), "log/note": np.ones(2, np.float32)}


def run(key: str, value, steps: int = 6) -> EnvGroup:
    Spoilt.lives = 0
    group = EnvGroup(lambda _: Spoilt(key, value), [7])
    acts = group.reset_actions()
    for _ in range(steps):
        obs = group.step(acts)
        assert all(np.isfinite(obs[k]).all() for k in ("vector", "reward"))
        acts = {"action": np.zeros(1, np.int32), "reset": obs["is_last"].copy()}
    return group


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vector", np.array([1, np.nan], np.float32)),
        ("vector", np.array([1, np.inf], np.float64)),
        ("vector", [1.0, float("-inf")]),
        ("reward", np.float32("nan")),
        ("reward", float("inf")),
        ("vector", np.array(["a", "b"])),
        ("vector", np.array([1j, 0])),
        ("vector", np.array([None, {}])),
        ("count", np.array(1.5)),
        ("vector", np.zeros(3, np.float32)),
    ],
)
def test_what_cannot_be_learned_from_is_never_seen(key, value, caplog):
    assert run(key, value).rebuilds == 1
    assert f"'{key}'" in caplog.text or "vector" in caplog.text
    assert "environment 7 failed, rebuilding it" in caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vector", np.array([1, 2])),
        ("vector", np.array([1, 2], np.float64)),
        ("vector", np.array([True, False])),
        ("vector", np.full(2, 3e38, np.float32)),
        ("count", np.array(1, np.int64)),
        ("log/note", np.array([np.nan, 0], np.float32)),
    ],
)
def test_other_widths_are_converted_and_extremes_are_no_fault(key, value):
    assert run(key, value).rebuilds == 0


def test_an_environment_that_never_does_better_is_given_up():
    Spoilt.lives = -100  # no life is the first
    group = EnvGroup(lambda _: AlwaysNan(), [0])
    acts = group.reset_actions()
    with pytest.raises(EnvError, match="NaN or infinity"):
        for _ in range(20):
            group.step(acts)


class AlwaysNan(Spoilt):
    def move(self, action: dict) -> tuple[dict, float, bool]:
        return {**self._show(), "vector": np.full(2, np.nan, np.float32)}, 0.0, False

    def begin(self) -> dict:
        return {**self._show(), "vector": np.full(2, np.nan, np.float32)}
