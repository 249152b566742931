"""Tabular Q-learning as a custom agent: learns CartPole in a minute on two cores.

It implements the agent contract that `docs/own_agent.md` describes. From this directory:

    dreamfleet train --agent own_agent:TableAgent --preset cartpole --logdir ~/logdir/table
"""

import numpy as np

from dreamfleet import AgentOptions

LIMITS = np.array([2.4, 3.0, 0.21, 2.5], np.float32)  # of CartPole's position, speed, angle and angular speed
CELLS = (3, 3, 7, 5)  # that each of them is divided into, between its limits
DISCOUNT = 0.99
RATE = 0.3
EXPLORE = 0.1  # share of random actions in training


class TableAgent:
    """Values of all actions in each cell of the observations `vector`, learned from replayed steps."""

    def __init__(self, obs_space: dict, act_space: dict, options: AgentOptions):
        assert obs_space["vector"].shape == LIMITS.shape, "the cells are made for CartPole"
        self.values = np.zeros((*CELLS, int(act_space["action"].high)))
        self.seed = options.seed
        self.seed_policy(0)

    # Optional. Called once the agent is loaded, with another number in every life of the agent process: without it,
    # exploration would repeat its first random numbers after each restart.

    def seed_policy(self, number: int) -> None:
        self.rng = np.random.default_rng([self.seed, number])

    # What is remembered from step to step: nothing here. A recurrent agent returns arrays with a row for each sequence.

    def init_policy(self, batch_size: int) -> tuple:
        return ()

    def init_train(self, batch_size: int) -> tuple:
        return ()

    def init_report(self, batch_size: int) -> tuple:
        return ()

    # Called by the actor, in a thread of its own, with one observation of each of several environments.

    def policy(self, carry: tuple, obs: dict, mode: str = "train") -> tuple[tuple, dict, dict]:
        action = self.values[self._cells(obs["vector"])].argmax(-1)
        if mode == "train":
            is_random = self.rng.random(len(action)) < EXPLORE
            action = np.where(is_random, self.rng.integers(self.values.shape[-1], size=len(action)), action)
        return carry, {"action": action.astype(np.int32)}, {}  # the last are arrays to be stored with the steps

    # Called by the learner, with sequences of shape (B, T, ...).

    def train(self, carry: tuple, data: dict) -> tuple[tuple, dict, dict]:
        now, after = data["action"][:, :-1], slice(1, None)
        here = tuple(cells[:, :-1] for cells in self._cells(data["vector"]))
        there = tuple(cells[:, after] for cells in self._cells(data["vector"]))
        # A row has the observation, the reward that came with it, and the action that was taken then.
        future = np.where(data["is_terminal"][:, after], 0.0, self.values[there].max(-1))
        error = data["reward"][:, after] + DISCOUNT * future - self.values[(*here, now)]
        error = np.where(data["is_first"][:, after], 0.0, error)  # the next row is of another episode
        total, count = np.zeros_like(self.values), np.zeros_like(self.values)
        np.add.at(total, (*here, now), error)
        np.add.at(count, (*here, now), 1.0)
        self.values += RATE * total / np.maximum(count, 1.0)
        return carry, {}, {"error": np.abs(error).mean(), "value": self.values.max()}

    def report(self, carry: tuple, data: dict) -> tuple[tuple, dict]:
        return carry, {"visited": float((self.values != 0).mean())}

    def stream(self, source):
        return iter(source)  # a place to move batches to a device ahead of time

    # For checkpoints: a tree of arrays, numbers and text.

    def save(self) -> dict:
        return {"values": self.values}

    def load(self, data: dict, regex: str | None = None) -> None:
        self.values = np.array(data["values"])

    def _cells(self, vector: np.ndarray) -> tuple[np.ndarray, ...]:
        place = (np.clip(vector / LIMITS, -0.999, 0.999) + 1) / 2  # 0 to 1
        return tuple((place[..., i] * cells).astype(int) for i, cells in enumerate(CELLS))
