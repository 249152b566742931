"""An environment of one's own, complete: keep a room warm while the weather changes.

It is a plain Gymnasium environment; nothing in it knows Dreamfleet. From this directory:

    dreamfleet check-env own_env:Room
    dreamfleet train --preset tiny --task own_env:Room --steps 20000 --logdir ~/logdir/room
"""

import gymnasium
import numpy as np
from gymnasium import spaces

COMFORT = 21.0  # degrees


class Room(gymnasium.Env):
    """A heater of 0 to 10 kilowatts, set every ten minutes of a day; the reward is comfort less the price of heat."""

    def __init__(self, hours: int = 24):
        self.observation_space = spaces.Dict(
            {
                "inside": spaces.Box(-50, 80, (), np.float32),
                "outside": spaces.Box(-50, 80, (), np.float32),
                "hour": spaces.Discrete(24),
            }
        )
        self.action_space = spaces.Box(0, 10, (1,), np.float32)
        self._steps_in_day = 6 * hours

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # makes self.np_random
        self._step = 0
        self._weather = self.np_random.uniform(-10, 10)
        self._inside = self.np_random.uniform(10, 25)
        return self._observe(), {"energy": 0.0, "distance": abs(self._inside - COMFORT)}

    def step(self, action):
        power = float(action[0])
        self._step += 1
        self._weather += self.np_random.normal(0, 0.2)
        self._inside += 0.02 * (self._outside() - self._inside) + 0.08 * power
        distance = abs(self._inside - COMFORT)
        reward = -0.1 * distance - 0.01 * power
        is_frozen = self._inside < 0  # the pipes burst: a real end, after which nothing can be gained
        is_day_over = (
            self._step >= self._steps_in_day
        )  # only the clock ends it: the agent still values what would follow
        # Numbers in info are logged as episode/log/energy and so on; the agent does not see them.
        return self._observe(), reward, is_frozen, is_day_over, {"energy": power / 6, "distance": distance}

    def _outside(self) -> float:
        return self._weather + 5 * np.sin(2 * np.pi * self._step / 144)

    def _observe(self) -> dict:
        return {
            "inside": np.float32(self._inside),
            "outside": np.float32(self._outside()),
            "hour": self._step // 6 % 24,
        }
