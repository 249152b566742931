"""`dreamfleet check-env`: what is printed, and the exit codes."""

import json
import sys

import pytest

from dreamfleet.cli import main

GOOD = """
import gymnasium, numpy as np
from gymnasium import spaces

class Mine(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("a word from the environment")
        self.steps = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), 1.0, self.steps == 9, False, {}

class Broken(Mine):
    def step(self, action):
        return super().step(action)[0] / 0, 1.0, False, False, {}

class Raises(Mine):
    def step(self, action):
        raise ValueError("not today")
"""


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_envs_to_check.py").write_text(GOOD)
    yield
    sys.modules.pop("own_envs_to_check", None)


def test_a_good_environment_passes_with_a_report(capsys):
    assert main(["check-env", "own_envs_to_check:Mine", "--steps", "50"]) == 0
    out = capsys.readouterr().out
    assert "passed: 0 errors, 0 warnings" in out and "vector float32[3]" in out
    assert "a word" not in out, "what the environment prints does not mix with the report"


def test_json_is_all_that_is_printed(capsys):
    assert main(["check-env", "own_envs_to_check:Mine", "--steps", "50", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["task"] == "own_envs_to_check:Mine" and report["ok"] is True
    assert report["facts"]["episodes"] >= 4
    assert {"level", "check", "message"} == set(report["findings"][0])


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
def test_a_broken_one_fails(capsys):
    options = ["--env.gym.info", "none", "--steps", "50"]
    assert main(["check-env", "own_envs_to_check:Broken", *options]) == 1
    assert "error    numbers      step 1: 'vector' has NaN or infinity" in capsys.readouterr().out
    assert main(["check-env", "own_envs_to_check:Raises", *options]) == 1
    out = capsys.readouterr().out
    assert "ValueError: not today" in out and 'own_envs_to_check.py", line' in out


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["chess"], "task='chess' names an unknown suite"),
        (["gym_NoSuch-v0"], "cannot be made by Gymnasium"),
        (["no_such_module_at_all:Env"], "names module no_such_module_at_all"),
        (["own_envs_to_check:Other"], "names Other, which module own_envs_to_check does not have"),
        (["dummy_vector", "--steps", "1"], "steps=1 is too small"),
        (["dummy_vector", "--env.dumy.size", "3"], "did you mean --env.dummy.size"),
    ],
)
def test_a_wrong_question_is_told_from_a_wrong_environment(argv, expected, capsys):
    assert main(["check-env", *argv]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err and captured.out == ""


def test_help_has_examples(capsys):
    assert main(["check-env", "--help"]) == 0
    assert "examples:" in (text := capsys.readouterr().out) and "--json" in text and "Exit code" in text


def test_options_of_the_config_are_used(capsys):
    assert main(["check-env", "dummy_image", "--preset", "debug", "--env.dummy.size", "48", "--steps", "30"]) == 0
    assert "image uint8[48, 48, 3]" in capsys.readouterr().out
