"""An environment that counts and an agent that checks the counts: together they see every mistake in between."""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import elements
import numpy as np

from dreamfleet.agent.contract import Batch
from dreamfleet.base.keys import is_logged
from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES

NUM_ACTIONS = 7


class CountingEnv:
    """Episodes of known length whose observations say which environment, life, episode and step they are of."""

    def __init__(self, index: int = 0, length: int = 10, image_size: int = 0):
        self.obs_space = {
            "step": elements.Space(np.int32),
            "episode": elements.Space(np.int32),
            "env": elements.Space(np.int32),
            "life": elements.Space(np.int64),
            "log/double": elements.Space(np.float32),
            **STEP_SPACES,
        }
        if image_size:
            self.obs_space["image"] = elements.Space(np.uint8, (image_size, image_size, 3))
        self.act_space = {"action": elements.Space(np.int32, (), 0, NUM_ACTIONS), "reset": RESET_SPACE}
        self._index = index
        # Tells rows from before and after a rebuild apart.
        self._life = int.from_bytes(np.random.bytes(7), "little")
        self._length = length
        self._image_size = image_size
        self._episode = -1
        self._step = 0
        self._done = True

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            self._episode += 1
            self._step = 0
            self._done = False
        else:
            assert action["action"] == expected_action(self._index, self._step), (action, self._index, self._step)
            self._step += 1
            self._done = self._step >= self._length
        return self._obs()

    def close(self) -> None:
        pass

    def _obs(self) -> dict:
        obs = {
            "step": np.int32(self._step),
            "episode": np.int32(self._episode),
            "env": np.int32(self._index),
            "life": np.int64(self._life),
            "log/double": np.float32(2 * self._step),
            "reward": np.float32(self._step > 0),
            "is_first": self._step == 0,
            "is_last": self._done,
            "is_terminal": self._done,
        }
        if self._image_size:
            obs["image"] = np.full((self._image_size, self._image_size, 3), self._step % 256, np.uint8)
        return obs


def expected_action(env: Any, step: Any) -> Any:
    """What CountingAgent answers to a step of CountingEnv, and what the environment checks it gets."""
    return (env + 3 * step) % NUM_ACTIONS


class CountingAgent:
    """An agent that raises at the first carry, sequence or chunk that is not as it must be, when run on CountingEnv.

    `carry_kind` says what its carries are made of: `array`, `list` (one entry per environment), or `none`. `context` is
    the number of rows that a chunk repeats of the one before.
    """

    def __init__(self, carry_kind: str = "array", with_updates: bool = True, context: int = 1):
        self.policy_rows = 0
        self.policy_shapes: set[int] = set()
        self.trained = 0
        self._carry_kind = carry_kind
        self._with_updates = with_updates
        self._context = context
        self._lock = threading.Lock()

    def init_policy(self, batch_size: int) -> Any:
        if self._carry_kind == "none":
            return ()
        # Environment, episode and step of the row before; a negative environment is the initial carry.
        if self._carry_kind == "list":
            return {"last": [(-1, -1, -1)] * batch_size}
        return {"last": np.full((batch_size, 3), -1, np.int64)}

    def init_train(self, batch_size: int) -> Any:
        return {"ends": None}

    def init_report(self, batch_size: int) -> Any:
        return {"ends": None}

    def policy(self, carry: Any, obs: Batch, mode: str = "train") -> tuple[Any, Batch, Batch]:
        assert mode in ("train", "eval"), mode
        assert not any(is_logged(k) or k in ("envid", "is_eval", "reset") for k in obs), list(obs)
        rows = np.stack([obs["env"], obs["episode"], obs["step"]], 1).astype(np.int64)
        with self._lock:
            self.policy_rows += len(rows)
            self.policy_shapes.add(len(rows))
        if carry != ():
            kind = list if self._carry_kind == "list" else np.ndarray
            assert isinstance(carry["last"], kind) and len(carry["last"]) == len(rows), carry
            self._check_carry(np.array(carry["last"]), rows, obs["is_first"])
            last = [tuple(row) for row in rows.tolist()] if kind is list else rows
            carry = {"last": last}
        acts = {"action": expected_action(obs["env"], obs["step"]).astype(np.int32)}
        return carry, acts, {"echo": (obs["step"] * 10).astype(np.int32)}

    def train(self, carry: Any, data: Batch) -> tuple[Any, dict, dict]:
        check_sequences(data)
        ends = self._check_chunks(carry["ends"], data)
        with self._lock:
            self.trained += 1
        outs = {}
        if self._with_updates:
            outs["replay"] = {"stepid": data["stepid"], "echo": data["echo"]}
        return {"ends": ends}, outs, {"updates": np.float32(self.trained)}

    def report(self, carry: Any, data: Batch) -> tuple[Any, dict]:
        check_sequences(data)
        return carry, {"reported": np.float32(1.0)}

    def stream(self, source: Iterable[Batch]) -> Iterator[Batch]:
        return iter(source)

    def save(self) -> dict:
        return {"trained": self.trained, "weights": np.full(3, self.trained, np.float32)}

    def load(self, data: dict, regex: str | None = None) -> None:
        assert (data["weights"] == data["trained"]).all(), data
        self.trained = int(data["trained"])

    def _check_carry(self, last: np.ndarray, rows: np.ndarray, is_first: np.ndarray) -> None:
        follows = (last[:, :2] == rows[:, :2]).all(1) & (last[:, 2] + 1 == rows[:, 2])
        wrong = ~(follows | is_first)
        assert not wrong.any(), f"carries {last[wrong].tolist()} came with observations {rows[wrong].tolist()}"

    def _check_chunks(self, ends: np.ndarray | None, data: Batch) -> np.ndarray:
        """A chunk that continues another must begin where that one ended."""
        assert (data["consec"] == data["consec"][:, :1]).all(), data["consec"]
        continues = data["consec"][:, 0] > 0
        if self._context and continues.any():
            assert ends is not None, "the first chunk must have number 0"
            matches = (data["stepid"][:, self._context - 1] == ends).all(-1)
            assert matches[continues].all(), "a chunk does not begin where the one before ended"
        return data["stepid"][:, -1].copy()


def check_sequences(data: Batch) -> None:
    """Raises unless every sequence is contiguous, of one environment, and each row holds what belongs to its step."""
    step, env, life, episode = (data[k].astype(np.int64) for k in ("step", "env", "life", "episode"))
    is_first, is_last = data["is_first"], data["is_last"]
    assert (env == env[:, :1]).all(), f"a sequence mixes environments: {env.tolist()}"
    follows = (step[:, 1:] == step[:, :-1] + 1) & (episode[:, 1:] == episode[:, :-1]) & (life[:, 1:] == life[:, :-1])
    starts = step[:, 1:] == 0
    assert (follows ^ starts).all(), f"a sequence has a gap: steps {step.tolist()}, episodes {episode.tolist()}"
    assert (is_first[:, 1:] == starts).all(), f"a row is wrongly first or not: {is_first.tolist()}, {step.tolist()}"
    assert (is_last[:, :-1] == is_first[:, 1:]).all(), "an episode has no last row before the next first one"
    assert (data["action"] == expected_action(env, step)).all(), "an action is not the one given to its observation"
    assert (data["echo"] == step * 10).all(), "an output is not the one made with its observation"
    assert (data["reward"] == (step > 0)).all(), "a reward is not the one of its step"
    if "image" in data:
        pixels = (step % 256).astype(np.uint8)[..., None, None, None]
        assert (data["image"] == pixels).all(), "an image is not the one of its step"
    flat = data["stepid"].reshape(len(step), -1, data["stepid"].shape[-1])
    assert all(len({bytes(row) for row in rows}) == len(rows) for rows in flat), "a step id is repeated in a sequence"
