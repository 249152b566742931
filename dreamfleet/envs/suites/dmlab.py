"""The levels of DMLab-30 on DeepMind Lab, seen as images, with instructions as text features where a level has some."""

import re
import zlib

import deepmind_lab  # pyright: ignore[reportMissingImports] (no extra can bring it, see the registry)
import elements
import numpy as np

from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.envs.suites.names import check_name
from dreamfleet.options.env import DmlabOptions

LEVELS = (
    *(f"explore_goal_locations_{size}" for size in ("large", "small")),
    *(f"explore_object_locations_{size}" for size in ("large", "small")),
    *(f"explore_object_rewards_{amount}" for amount in ("few", "many")),
    *(f"explore_obstructed_goals_{size}" for size in ("large", "small")),
    "language_answer_quantitative_question",
    "language_execute_random_task",
    "language_select_described_object",
    "language_select_located_object",
    *(f"lasertag_{who}_{size}" for who in ("one_opponent", "three_opponents") for size in ("large", "small")),
    "natlab_fixed_large_map",
    "natlab_varying_map_randomized",
    "natlab_varying_map_regrowth",
    "psychlab_arbitrary_visuomotor_mapping",
    "psychlab_continuous_recognition",
    "psychlab_sequential_comparison",
    "psychlab_visual_search",
    *(f"rooms_collect_good_objects_{part}" for part in ("train", "test")),
    *(f"rooms_exploit_deferred_effects_{part}" for part in ("train", "test")),
    "rooms_keys_doors_puzzle",
    "rooms_select_nonmatching_object",
    "rooms_watermaze",
    "skymaze_irreversible_path_hard",
    "skymaze_irreversible_path_varied",
)
IMAGE, INSTRUCTION = "RGB_INTERLEAVED", "INSTR"
HOLDOUT_SEED = 0x600D5EED  # mixed into the seeds of levels for evaluation, as the benchmark has it
WORDS, FEATURES = 32, 32  # of an instruction: how many, and the numbers that stand for each
BUCKETS = 2**16  # of words, by their hash


def _turn(pixels: int, forward: int = 0) -> tuple[int, ...]:
    return pixels, 0, 0, forward, 0, 0, 0


# Each action: look right and down (in pixels per frame), strafe right, move forward, fire, jump, crouch.
FORWARD, BACKWARD = (0, 0, 0, 1, 0, 0, 0), (0, 0, 0, -1, 0, 0, 0)
STRAFE_LEFT, STRAFE_RIGHT = (0, 0, -1, 0, 0, 0, 0), (0, 0, 1, 0, 0, 0, 0)
LOOK_DOWN, LOOK_UP = (0, 10, 0, 0, 0, 0, 0), (0, -10, 0, 0, 0, 0, 0)
FIRE = (0, 0, 0, 0, 1, 0, 0)
WALK = (FORWARD, BACKWARD, STRAFE_LEFT, STRAFE_RIGHT)
ACTIONS = {
    "impala": (*WALK, _turn(-20), _turn(20), _turn(-20, 1), _turn(20, 1), FIRE),
    "popart": (
        *WALK,
        *(_turn(-10), _turn(10), _turn(-60), _turn(60)),
        *(LOOK_DOWN, LOOK_UP),
        *(_turn(-10, 1), _turn(10, 1), _turn(-60, 1), _turn(60, 1)),
        FIRE,
    ),
}


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, name, LEVELS)


def make_dmlab(name: str, seed: int, options: DmlabOptions) -> "DMLab":
    """A level of DMLab-30; those for tests are trained on with their counterparts for training."""
    check("dmlab", name)
    level = name if options.holdout else re.sub("_test$", "_train", name)
    return DMLab(level, seed, options)


class DMLab:
    """A level; its last image is not shown, so that the one before is repeated."""

    def __init__(self, level: str, seed: int, options: DmlabOptions):
        self._options = options
        self._actions = np.array(ACTIONS[options.actions], np.intc)
        self._rng = np.random.default_rng(seed)
        self._has_text = level.startswith("language_")
        config = {"width": options.size, "height": options.size, "logLevel": "WARN"}
        if options.holdout:
            config |= {"allowHoldOutLevels": "true", "mixerSeed": HOLDOUT_SEED}
        self._lab = deepmind_lab.Lab(
            f"contributed/dmlab30/{level}",
            [IMAGE, INSTRUCTION] if self._has_text else [IMAGE],
            config={key: str(value) for key, value in config.items()},
        )
        self._seen: dict[str, np.ndarray] = {}
        self._done = True
        self.obs_space = {"image": elements.Space(np.uint8, (options.size, options.size, 3)), **STEP_SPACES}
        if self._has_text:
            self.obs_space["instruction"] = elements.Space(np.float32, (WORDS * FEATURES,))
        self.act_space = {"action": elements.Space(np.int32, (), 0, len(self._actions)), "reset": RESET_SPACE}

    def step(self, action: dict) -> dict:
        if self._done or action["reset"]:
            self._lab.reset(seed=int(self._rng.integers(2**31)))
            self._done = False
            self._look()
            return self._obs(0.0, is_first=True)
        reward = self._lab.step(self._actions[action["action"]], num_steps=self._options.repeat)
        self._done = not self._lab.is_running()
        if not self._done:
            self._look()
        return self._obs(reward, is_last=self._done)

    def close(self) -> None:
        self._lab.close()

    def _look(self) -> None:
        seen = self._lab.observations()
        self._seen = {"image": np.array(seen[IMAGE])}  # a copy: the game draws into the same memory
        if self._has_text:
            self._seen["instruction"] = embed(str(seen[INSTRUCTION]))

    def _obs(self, reward: float, is_first: bool = False, is_last: bool = False) -> dict:
        is_terminal = is_last and self._options.episodic
        flags = {"is_first": is_first, "is_last": is_last, "is_terminal": is_terminal}
        return {**self._seen, "reward": np.float32(reward), **flags}


def embed(text: str) -> np.ndarray:
    """Random features for each word of a text, the same for the same word, and zeros behind the last."""
    words = re.findall(r"[a-z_]+|[^a-z_\s]+", text.lower())[:WORDS]
    features = np.zeros((WORDS, FEATURES), np.float32)
    for row, word in zip(features, words, strict=False):
        row[:] = np.random.default_rng(zlib.crc32(word.encode()) % BUCKETS).normal(size=FEATURES)
    return features.reshape(-1)
