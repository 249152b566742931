"""Environments that no run can work with, as a user might write them; see `test_misbehaving_envs.py`."""

import os
import sys
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class Good(gymnasium.Env):
    """Episodes of ten steps."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        return self.observe(), 1.0, self.time == 10, False, {}

    def observe(self):
        return np.zeros(3, np.float32)


class RaisesInConstructor(Good):
    def __init__(self):
        raise RuntimeError("out of licences")


class RaisesInReset(Good):
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("no connection to the simulator")


class RaisesInStep(Good):
    def step(self, action):
        if self.time == 3:
            raise RuntimeError("the heater is on fire")
        return super().step(action)


class RaisesInRenderer(Good):
    observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)

    def observe(self):
        return self.render()

    def render(self):
        raise OSError("cannot open display ':0'")


class Nan(Good):
    def observe(self):
        return np.full(3, np.nan if self.time == 3 else 0, np.float32)


class NanReward(Good):
    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, float("nan"), *rest


class WrongShape(Good):
    def observe(self):
        return np.zeros(4 if self.time == 3 else 3, np.float32)


class WrongDtype(Good):
    observation_space = spaces.Discrete(5)

    def observe(self):
        return 0.5


class Aborts(Good):
    def step(self, action):
        if self.time == 3:
            os.abort()
        return super().step(action)


class Exits(Good):
    def step(self, action):
        if self.time == 3:
            sys.exit()
        return super().step(action)


def is_first() -> bool:
    """Whether the first environment of a run is being built, which is the one that is checked."""
    marker = Path(os.environ["MISBEHAVING"])
    is_first = not marker.exists()
    marker.touch()
    return is_first


def late(kind: type[Good]):
    """A factory of environments that pass the check and misbehave in the run."""
    return lambda: Good() if is_first() else kind()


late_raise, late_abort, late_nan, late_exit = late(RaisesInStep), late(Aborts), late(Nan), late(Exits)


class Flaky(Good):
    """Raises now and then, but finishes episodes."""

    episodes = 0

    def step(self, action):
        self.episodes += self.time == 0
        if self.episodes == 4:
            raise RuntimeError("a glitch")
        return super().step(action)
