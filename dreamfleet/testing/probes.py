"""Probe environments: tiny tasks with a known best score, each asking for one ability of an agent."""

import elements
import numpy as np

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES

CHOICE = elements.Space(np.int32, (), 0, 2)
LAMPS = 32  # that show a number or a cue


class Probe:
    """Base of the probes: keeps the episode, leaves observation and reward to `begin` and `move`.

    `best_score` is what an optimal policy gets in an episode, `random_score` what a random one gets on average.
    """

    best_score = 1.0
    random_score = 0.5
    spaces: dict[str, elements.Space] = {"vector": elements.Space(np.float32, (2,))}
    actions: dict[str, elements.Space] = {"action": CHOICE}

    def __init__(self, seed: int = 0):
        self.obs_space = {**self.spaces, **STEP_SPACES}
        self.act_space = {**self.actions, "reset": RESET_SPACE}
        self.rng = np.random.default_rng(seed)
        self._done = True

    def begin(self) -> dict:
        """The first observation of a new episode."""
        raise TypeError(f"{type(self).__name__} must define begin()")

    def move(self, action: dict) -> tuple[dict, float, bool]:
        """The next observation, its reward, and whether the episode is over."""
        raise TypeError(f"{type(self).__name__} must define move(action)")

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            self._done = False
            return self._obs(self.begin(), 0.0, is_first=True)
        obs, reward, self._done = self.move(action)
        return self._obs(obs, reward)

    def close(self) -> None:
        pass

    def _obs(self, obs: dict, reward: float, is_first: bool = False) -> dict:
        flags = {"is_first": is_first, "is_last": self._done, "is_terminal": self._done}
        return {**obs, "reward": np.float32(reward), **flags}


def light_lamps(cue: int) -> np.ndarray:
    """Lights the first or the second half of the lamps.

    All of them, because a world model weighs what it keeps of an observation by the square of its error: of a cue that
    is one number of size 1, it takes one in 17 for the other.
    """
    return np.repeat(np.eye(2, dtype=np.float32)[cue], LAMPS // 2)


class OneStepReward(Probe):
    """One decision: the action that the observation shows is paid at once."""

    spaces = {"vector": elements.Space(np.float32, (LAMPS,))}

    def begin(self) -> dict:
        self._cue = int(self.rng.integers(2))
        return {"vector": light_lamps(self._cue)}

    def move(self, action: dict) -> tuple[dict, float, bool]:
        return {"vector": np.zeros(LAMPS, np.float32)}, float(action["action"] == self._cue), True


class DelayedReward(Probe):
    """The first action decides; the reward comes three steps later."""

    def begin(self) -> dict:
        self._time, self._is_right = 0, False
        return self._show()

    def move(self, action: dict) -> tuple[dict, float, bool]:
        if self._time == 0:
            self._is_right = bool(action["action"] == 1)
        self._time += 1
        done = self._time == 4
        return self._show(), float(done and self._is_right), done

    def _show(self) -> dict:
        return {"vector": np.array([self._time / 4, 1.0], np.float32)}


class MemoryCue(Probe):
    """A cue is shown only at the start; the last action must repeat it."""

    def begin(self) -> dict:
        self._time, self._cue = 0, int(self.rng.integers(2))
        return {"vector": np.array([1.0 if self._cue else -1.0, 0.0], np.float32)}

    def move(self, action: dict) -> tuple[dict, float, bool]:
        self._time += 1
        done = self._time == 4
        reward = float(done and action["action"] == self._cue)
        return {"vector": np.array([0.0, self._time / 4], np.float32)}, reward, done


class ContinuousTarget(Probe):
    """A continuous action close to the level of a gauge is paid more.

    A gauge, because a world model that has one nat for free and weighs errors by their square keeps a number from
    -0.5 to 0.5 to about 0.11 only (its deviation of 0.29 times 1 / e), whatever the policy does with it.
    """

    random_score = 1.0 - 13 / 24
    spaces = {"vector": elements.Space(np.float32, (LAMPS + 1,))}
    actions = {"action": elements.Space(np.float32, (1,), -1, 1)}

    def begin(self) -> dict:
        self._target = float(self.rng.uniform(-0.5, 0.5))
        level = LAMPS * (self._target + 0.5)
        return {"vector": np.append(np.clip(level - np.arange(LAMPS), 0, 1), 1).astype(np.float32)}

    def move(self, action: dict) -> tuple[dict, float, bool]:
        distance = abs(float(action["action"][0]) - self._target)
        return {"vector": np.zeros(LAMPS + 1, np.float32)}, 1.0 - distance, True


class HybridAction(Probe):
    """A discrete and a continuous action at once: half of the reward for each."""

    spaces = OneStepReward.spaces
    actions = {"choice": CHOICE, "move": elements.Space(np.float32, (1,), -1, 1)}

    def begin(self) -> dict:
        self._cue = int(self.rng.integers(2))
        return {"vector": light_lamps(self._cue)}

    def move(self, action: dict) -> tuple[dict, float, bool]:
        sign = 1.0 if self._cue else -1.0
        reward = 0.5 * float(action["choice"] == self._cue) + 0.5 * float(sign * action["move"][0] > 0)
        return {"vector": np.zeros(LAMPS, np.float32)}, reward, True


class ImageCue(Probe):
    """The bright half of an image says which action is paid."""

    spaces = {"image": elements.Space(np.uint8, (64, 64, 3))}

    def begin(self) -> dict:
        self._cue = int(self.rng.integers(2))
        image = np.zeros((64, 64, 3), np.uint8)
        half = slice(32, 64) if self._cue else slice(0, 32)
        image[:, half] = 255
        return {"image": image}

    def move(self, action: dict) -> tuple[dict, float, bool]:
        return {"image": np.zeros((64, 64, 3), np.uint8)}, float(action["action"] == self._cue), True


PROBES = {
    "onestep": OneStepReward,
    "delayed": DelayedReward,
    "memory": MemoryCue,
    "continuous": ContinuousTarget,
    "hybrid": HybridAction,
    "image": ImageCue,
}
