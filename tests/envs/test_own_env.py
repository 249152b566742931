"""A user's own file: the example in `examples/`, and what is said when an environment in such a file raises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dreamfleet.envs.checker import check_env
from tests.fleet import DEADLINE_S, read_inserts, read_jsonl

EXAMPLES = Path(__file__).parents[2] / "examples"
DOCS = Path(__file__).parents[2] / "docs"

RAISES = """
from own_env import Room


class Fragile(Room):
    count = 0  # of the process

    def step(self, action):
        Fragile.count += 1
        if Fragile.count == 20:
            raise RuntimeError("the heater is on fire")  # line 11
        return super().step(action)
"""


def run(*words: object, directory: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "dreamfleet", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=directory)


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
def test_a_vector_environment_trains(tmp_path):
    (tmp_path / "several.py").write_text(
        "import gymnasium\n\ndef make():\n    return gymnasium.make_vec('CartPole-v1', 3)\n"
    )
    options = ("--envs", 6, "--run.envs_per_worker", 3, "--steps", 300)
    result = train(tmp_path, "several:make", tmp_path / "run", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    scores = [line["episode/score"] for line in read_jsonl(tmp_path / "run" / "scores.jsonl")]
    lengths = [line["episode/length"] for line in read_jsonl(tmp_path / "run" / "scores.jsonl")]
    assert len(scores) > 5 and scores == lengths, "a reward of 1 for every step"


def test_the_contract_in_the_documentation_is_kept():
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "environments.md").read_text(), re.DOTALL)
    names: dict = {}
    exec(code, names)
    report = check_env(names["Corridor"], 200)
    assert report.is_ok and report.facts["episodes"] > 10, str(report)


@pytest.mark.distributed
def test_the_traceback_of_an_environment_names_the_file_and_line_of_its_user(tmp_path):
    (tmp_path / "own_env.py").write_text((EXAMPLES / "own_env.py").read_text())
    (tmp_path / "fragile.py").write_text(RAISES)
    result = train(tmp_path, "fragile:Fragile", tmp_path / "run", "--steps", 200)
    text = result.stdout + result.stderr
    assert result.returncode == 0, "one failure does not end the run\n" + text
    assert f'{tmp_path}/fragile.py", line 11' in text and "RuntimeError: the heater is on fire" in text
