"""A user's own file: the example in `examples/`, and what is said when an environment in such a file raises."""

import subprocess
import sys
from pathlib import Path

import pytest
from fleet import read_inserts, read_jsonl

EXAMPLES = Path(__file__).parents[2] / "examples"

RAISES = """
from own_env import Room


class Fragile(Room):
    def step(self, action):
        if self._step == 3:
            raise RuntimeError("the heater is on fire")  # line 8
        return super().step(action)
"""


def run(*words: object, directory: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "dreamfleet", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=directory)


def train(directory: Path, task: str, logdir: Path, *options: object) -> subprocess.CompletedProcess:
    agent = "dreamfleet.agent.random:RandomAgent"
    words = ("--preset", "debug", "--task", task, "--agent", agent, "--logdir", logdir)
    return run("train", *words, *options, directory=directory)


@pytest.mark.distributed
def test_the_example_is_in_order():
    result = run("check-env", "own_env:Room", "--steps", 400, directory=EXAMPLES)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "passed: 0 errors, 0 warnings" in result.stdout


@pytest.mark.distributed
def test_the_example_trains(tmp_path):
    result = train(EXAMPLES, "own_env:Room", tmp_path, "--steps", 400)
    assert result.returncode == 0, result.stdout + result.stderr
    assert read_inserts(tmp_path) >= 400
    keys = {key for line in read_jsonl(tmp_path / "metrics.jsonl") for key in line}
    assert {"episode/log/energy/sum", "episode/log/distance/avg"} <= keys


@pytest.mark.distributed
def test_the_traceback_of_an_environment_names_the_file_and_line_of_its_user(tmp_path):
    (tmp_path / "own_env.py").write_text((EXAMPLES / "own_env.py").read_text())
    (tmp_path / "fragile.py").write_text(RAISES)
    result = train(tmp_path, "fragile:Fragile", tmp_path / "run", "--run.max_restarts", 1)
    assert result.returncode == 1
    text = result.stdout + result.stderr
    assert f'{tmp_path}/fragile.py", line 8' in text and "RuntimeError: the heater is on fire" in text
