"""The checker finds what is wrong with an environment, and nothing wrong with a good one."""

import functools
import mmap
import threading

import elements
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from dreamfleet.envs.checker import check_env
from dreamfleet.envs.contract import RESET_SPACE, STEP_SPACES
from dreamfleet.envs.dummy import Dummy
from dreamfleet.errors import ConfigError
from dreamfleet.testing import PROBES, CountingEnv

STEPS = 60


class Walk:
    """A good environment; `faults` change its observations before they leave."""

    def __init__(self, seed: int = 0, faults=lambda obs, count: obs):
        self.obs_space = {"place": elements.Space(np.float32, (2,), -5, 5), "room": elements.Space(np.int32, (), 0, 4)}
        self.obs_space |= {"image": elements.Space(np.uint8, (64, 64, 3)), **STEP_SPACES}
        self.act_space = {"move": elements.Space(np.float32, (2,), -1, 1), "reset": RESET_SPACE}
        self.rng = np.random.default_rng(seed)
        self.faults = faults
        self.count = self.total = 0
        self.done = True

    def step(self, action):
        is_first = self.done or bool(action["reset"])
        self.count = 0 if is_first else self.count + 1
        self.total += 1
        self.done = self.count == 7
        obs = {
            "place": self.rng.uniform(-1, 1, 2).astype(np.float32),
            "room": np.int32(self.rng.integers(4)),
            "image": self.rng.integers(0, 256, (64, 64, 3)).astype(np.uint8),
            "reward": np.float32(0 if is_first else 1),
            "is_first": is_first,
            "is_last": self.done,
            "is_terminal": self.done,
        }
        return self.faults(obs, self.total)

    def close(self):
        pass


def check(faults=lambda obs, count: obs, **options):
    return check_env(functools.partial(Walk, faults=faults), STEPS, **options)


def problems(report) -> list[tuple[str, str]]:
    return [(finding.level, finding.check) for finding in report.findings if finding.level != "ok"]


def message(report, check: str) -> str:
    return next(finding.message for finding in report.findings if finding.check == check)


def test_a_good_environment_passes():
    report = check()
    assert problems(report) == [] and report.is_ok, str(report)
    assert report.facts["episodes"] == 6 and report.facts["score"] == report.facts["length"] == 7
    assert report.facts["steps_per_s"] > 0
    assert str(report).endswith("passed: 0 errors, 0 warnings")


@pytest.mark.parametrize("make", [*PROBES.values(), lambda seed: Dummy("vector", 10, seed=seed)])
def test_shipped_environments_have_no_errors(make):
    report = check_env(make, STEPS)
    assert report.is_ok, str(report)


def with_value(key: str, value, at: int = 5):
    return lambda obs, count: {**obs, key: value} if count == at else obs


def without(key: str):
    return lambda obs, count: {k: v for k, v in obs.items() if k != key}


@pytest.mark.parametrize(
    ("faults", "problem", "text"),
    [
        (with_value("place", np.float32([0, np.nan])), ("error", "numbers"), "step 4: 'place' has NaN or infinity"),
        (with_value("reward", np.float32(np.inf)), ("error", "numbers"), "'reward' has NaN or infinity"),
        (with_value("place", np.zeros(3, np.float32)), ("error", "shapes"), "'place' has shape (3,)"),
        (with_value("room", np.float32(0.5)), ("error", "dtypes"), "'room' is float32, but its space says int32"),
        (with_value("room", "kitchen"), ("error", "dtypes"), "'room' is <U7"),
        (with_value("place", np.zeros(2)), ("warning", "dtypes"), "'place' is float64, and converted to float32"),
        (with_value("room", np.int32(4)), ("error", "ranges"), "'room' is 4, but its space says 0 to 3"),
        (with_value("place", np.float32([0, -6])), ("warning", "ranges"), "'place' is -6.0"),
        (without("room"), ("error", "keys"), "step 0: the observation has no ['room']"),
        (with_value("extra", 1), ("warning", "keys"), "the observation has ['extra']"),
        (with_value("is_first", True), ("error", "flags"), "is_first is set in the middle"),
        (with_value("is_first", False, at=1), ("error", "flags"), "a new episode was due"),
        (with_value("is_last", True, at=1), ("error", "flags"), "is_first and is_last are set at once"),
        (with_value("is_terminal", True), ("warning", "flags"), "is_terminal is set before the last step"),
        (
            with_value("reward", np.float32(1), at=1),
            ("warning", "rewards"),
            "the first observation of an episode has a",
        ),
        (lambda obs, count: {**obs, "image": obs["image"] // 255}, ("warning", "images"), "was never above 1"),
    ],
)
def test_what_is_wrong_in_a_step_is_named(faults, problem, text):
    report = check(faults)
    assert problem in problems(report)
    assert report.is_ok == (problem[0] == "warning")
    found = [f.message for f in report.findings if f.check == problem[1] and f.level == problem[0]]
    assert any(text in line for line in found), found


def test_is_first_one_step_late_is_found():
    class Late(Walk):
        def step(self, action):
            begins = self.done or bool(action["reset"])
            obs = super().step(action)
            obs["is_first"], self.begun = getattr(self, "begun", False), begins
            return obs

    report = check_env(Late, STEPS)
    assert ("error", "flags") in problems(report)
    assert any("a new episode was due" in f.message and "times)" in f.message for f in report.findings)


def test_a_reset_in_the_middle_that_is_ignored_is_found():
    class Deaf(Walk):
        def step(self, action):
            return super().step({**action, "reset": False})

    report = check_env(Deaf, STEPS)
    assert problems(report) == [("error", "flags")]
    assert f"step {STEPS // 2}" in message(report, "flags")


def test_chance_that_does_not_come_from_the_seed_is_found():
    report = check_env(lambda seed: Walk(seed=None), STEPS)
    assert problems(report) == [("warning", "seeds")]
    # Small spaces may agree by chance; the position in the image cannot be the same in both for long.
    assert "differ between two environments with one seed" in message(report, "seeds")


def test_a_seed_without_effect_is_found():
    report = check_env(lambda seed: Walk(seed=0), STEPS)
    assert problems(report) == [("warning", "seeds")]
    assert "another seed changes nothing" in message(report, "seeds")


def test_memory_that_grows_is_found():
    kept = []

    def keep(obs, count):
        # A megabyte of new pages: an array may get memory that an earlier test has freed.
        kept.append(mmap.mmap(-1, 2**20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        kept[-1].write(b"x" * 2**20)
        return obs

    report = check(keep)
    kept.clear()
    assert ("warning", "memory") in problems(report)
    assert report.facts["memory_growth_mb"] > 25


def test_a_factory_that_cannot_be_sent_is_found():
    lock = threading.Lock()
    report = check_env(lambda seed: Walk(seed + lock.locked()), STEPS)
    assert problems(report) == [("error", "pickling")]


def test_an_exception_is_reported_with_the_line_that_raised():
    def fail(obs, count):
        if count == 9:
            raise RuntimeError("the simulator fell over")
        return obs

    report = check(fail)
    assert problems(report) == [("error", "raised")]
    text = message(report, "raised")
    assert 'raise RuntimeError("the simulator fell over")' in text and __file__ in text


def test_spaces_that_break_the_contract_are_reported_and_wrong_tasks_are_not():
    class NoReward(Walk):
        def __init__(self, seed):
            super().__init__(seed)
            del self.obs_space["reward"]

    report = check_env(NoReward, STEPS)
    assert problems(report) == [("error", "contract")] and "obs_space has no 'reward'" in message(report, "contract")

    def refuse(seed):
        raise ConfigError("task", "x", "is wrong", "use another")

    with pytest.raises(ConfigError):
        check_env(refuse, STEPS)


def test_a_close_that_raises_is_a_warning():
    class Stuck(Walk):
        def close(self):
            raise OSError("will not close")

    report = check_env(Stuck, STEPS)
    assert problems(report) == [("warning", "close")] and "will not close" in message(report, "close")


def test_several_environments_in_one_are_checked_together():
    make = functools.partial(gymnasium.make_vec, "CartPole-v1", 3)
    report = check_env(lambda seed: make(), 100)
    assert report.is_ok, str(report)
    assert report.facts["episodes"] > 5


def test_images_that_are_too_small_or_no_bytes_are_mentioned():
    report = check_env(lambda seed: CountingEnv(image_size=40), 2)
    assert ("warning", "images") in problems(report)
    space = spaces.Box(0, 1, (64, 64, 3), np.float32)
    report = check_env(lambda seed: Painter(space), 10)
    assert "'vector' has 12,288 numbers; if it is an image" in message(report, "images")


class Painter(gymnasium.Env):
    """Shows samples of a space."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}
