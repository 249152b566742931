"""Environments with nothing to learn, as load for tests and benchmarks."""

import elements
import numpy as np

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES


class Dummy:
    """Fixed-length episodes of an image or a vector that carries the step count."""

    def __init__(self, kind: str = "vector", length: int = 100, size: int = 64, seed: int = 0):
        self._length = length
        space = {"image": elements.Space(np.uint8, (size, size, 3)), "vector": elements.Space(np.float32, (7,))}
        self.obs_space = {kind: space[kind], **STEP_SPACES}
        self.act_space = {"action": elements.Space(np.int32, (), 0, 5), "reset": RESET_SPACE}
        self._kind = kind
        self._rng = np.random.default_rng(seed)
        if kind == "image":
            self._content = self._rng.integers(0, 256, (size, size, 3)).astype(np.uint8)
        else:
            self._content = self._rng.normal(size=7).astype(np.float32)
        self._count = 0
        self._done = True

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            self._count = 0
            self._done = False
            return self._obs(0.0, is_first=True)
        self._count += 1
        self._done = self._count >= self._length
        return self._obs(1.0, is_last=self._done)

    def close(self) -> None:
        pass

    def _obs(self, reward: float, is_first: bool = False, is_last: bool = False) -> dict:
        self._content.flat[0] = self._count % 256
        return {
            self._kind: self._content.copy(),
            "reward": np.float32(reward),
            "is_first": is_first,
            "is_last": is_last,
            "is_terminal": False,
        }
