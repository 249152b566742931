"""An environment with the spaces that the recorded weights of the reference are for."""

import elements
import numpy as np

LENGTH = 6


class RecordedEnv:
    obs_space = {
        "image": elements.Space(np.uint8, (64, 64, 3)),
        "vector": elements.Space(np.float32, (7,)),
        "token": elements.Space(np.int32, (), 0, 6),
        "reward": elements.Space(np.float32),
        "is_first": elements.Space(bool),
        "is_last": elements.Space(bool),
        "is_terminal": elements.Space(bool),
    }
    act_space = {
        "discrete": elements.Space(np.int32, (), 0, 4),
        "continuous": elements.Space(np.float32, (2,), -1, 1),
        "reset": elements.Space(bool),
    }

    def __init__(self, index=0):
        self._count = 0

    def step(self, action):
        self._count = 0 if action["reset"] else self._count + 1
        return {
            "image": np.full((64, 64, 3), self._count, np.uint8),
            "vector": np.full(7, self._count, np.float32),
            "token": np.int32(self._count % 6),
            "reward": np.float32(self._count > 0),
            "is_first": self._count == 0,
            "is_last": self._count == LENGTH,
            "is_terminal": self._count == LENGTH,
        }

    def close(self):
        pass
