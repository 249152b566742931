"""An environment that numbers its steps and misbehaves when it is told to: the task of every chaos run."""

import os
import resource
import threading
from pathlib import Path

import elements
import numpy as np

from benchmarks.chaos.control import Control, Life, make_life
from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.launch.supervise.process_tree import TOKEN_VARIABLE

LENGTH = 20
LEAK_BYTES = 16 << 20  # a step
LEAK_LIMIT = 256 << 20  # before the process has no more


class FaultyEnv:
    """The observation holds the life and the number of the step, so that replay shows what is missing."""

    def __init__(self):
        self.obs_space = {"vector": elements.Space(np.float32, (3,)), **STEP_SPACES}
        self.act_space = {"action": elements.Space(np.int32, (), 0, 3), "reset": RESET_SPACE}
        self._control, self._index = Control.of_this_process(), own_index()
        self._life = make_life()
        self._episode_step = 0
        self._done = True
        self._leaked: list[np.ndarray] = []
        self._is_leaking = False

    def step(self, action: dict) -> dict:
        is_first = bool(self._done or action["reset"])
        self._episode_step = 0 if is_first else self._episode_step + 1
        self._done = self._episode_step >= LENGTH
        obs = self._observe(is_first)
        self._life = Life(self._life.number, self._life.steps + 1)
        if self._control and self._index is not None:
            if self._control.pace_s:
                threading.Event().wait(self._control.pace_s)
            self._misbehave(obs, self._control.take(self._index))
            self._control.tell(self._index, self._life)
        return obs

    def close(self) -> None:
        if self._is_leaking:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self._leaked.clear()

    def _observe(self, is_first: bool) -> dict:
        flags = {"is_first": is_first, "is_last": self._done, "is_terminal": False}
        vector = np.array([self._life.number, self._life.steps, self._episode_step], np.float32)
        return {"vector": vector, "reward": np.float32(not is_first), **flags}

    def _misbehave(self, obs: dict, fault: str | None) -> None:
        if fault == "raise":
            raise RuntimeError("the simulator broke")
        if fault == "hang":
            threading.Event().wait()
        elif fault == "slow" and self._control:
            threading.Event().wait(self._control.slow_s)
        elif fault == "nan":
            obs["vector"][1] = np.nan
        elif fault == "shape":
            obs["vector"] = obs["vector"][:2]
        elif fault == "dtype":
            obs["vector"] = np.array(["a", "b", "c"])
        elif fault == "leak":
            self._is_leaking = True
            resource.setrlimit(resource.RLIMIT_AS, (address_space() + LEAK_LIMIT, resource.RLIM_INFINITY))
        if self._is_leaking:
            self._leaked.append(np.ones(LEAK_BYTES, np.uint8))


def own_index() -> int | None:
    """The number in the name of the role that this process is, if it is an environment's."""
    role = os.environ.get(TOKEN_VARIABLE, "//").split("/")[1]
    return int(role[3:]) if role.startswith("env") and role[3:].isdecimal() else None


def address_space() -> int:
    """Bytes that this process has mapped."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
