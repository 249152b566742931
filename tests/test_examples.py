"""The examples that train, run as their user would; `own_agent.py` and `own_env.py` have tests of their own."""

import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.metrics.reading import read_series
from tests.fleet import DEADLINE_S, read_inserts, read_jsonl

pytestmark = pytest.mark.distributed

EXAMPLES = Path(__file__).parents[1] / "examples"
TESTED = {"own_agent.py", "own_env.py", "jax_agent.py", "remote_envs.py", "tour.ipynb"}


def run(*words: object) -> str:
    command = [sys.executable, *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=EXAMPLES)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def train_jax(logdir: Path, *options: object) -> None:
    agent = ("--agent", "jax_agent:DQN", "--preset", "cartpole")
    run("-m", "dreamfleet", "train", *agent, "--logdir", logdir, *options)


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == TESTED


def test_jax_agent_updates_and_resumes(tmp_path):
    options = ("--run.log_every", 0.5, "--run.report_every", 0.5, "--eval-envs", 1, "--batch_length", 32)
    train_jax(tmp_path, "--steps", 800, *options)
    first = Checkpoints(tmp_path).latest()
    assert first is not None and first.manifest["updates"] > 10
    train_jax(tmp_path, "--steps", 1600, *options)
    second = Checkpoints(tmp_path).latest()
    assert second is not None and second.manifest["updates"] > first.manifest["updates"], "it was resumed"
    before, after = first.read("agent"), second.read("agent")
    assert before.keys() == after.keys() and all((before[key] != after[key]).any() for key in before)
    keys = {key for line in read_jsonl(tmp_path / "metrics.jsonl") for key in line}
    assert {"train/loss", "train/value", "report/loss", "eval_episode/score"} <= keys


@pytest.mark.learning
def test_jax_agent_learns(tmp_path):
    train_jax(tmp_path, "--run.mode", "serial", "--run.train_ratio", 256, "--steps", 6000)
    scores = read_series(tmp_path / "scores.jsonl")["episode/score"].value
    assert np.mean(scores[:10]) < 30 and np.mean(scores[-10:]) > 80, scores


def test_remote_environments(tmp_path):
    output = run("remote_envs.py", "--logdir", tmp_path, "--steps", 1000)
    assert "envs remote" in output and "finished" in output
    assert read_inserts(tmp_path / "trainer") >= 1000
    assert (tmp_path / "worker" / "joined" / "envs" / "logs" / "env3.log").is_file(), "environments ran in the worker"
    assert not list((tmp_path / "trainer" / "logs").glob("env*")), "and nowhere else"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the notebook packages themselves
def test_notebook(tmp_path):
    notebook = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    names = {line.split(" = ")[0] for line in parameters.source.splitlines()}
    assert names == {"preset", "steps", "logdir"}
    parameters.source = f'preset = ["debug", "random", "cartpole"]\nsteps = 600\nlogdir = "{tmp_path}"'
    NotebookClient(notebook, timeout=int(DEADLINE_S), resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    *_, plot, metrics, state, evaluated, recorded, film = outputs
    assert any("image/png" in output.get("data", {}) for output in plot)
    assert "train/reward" in metrics[0]["data"]["text/plain"]
    assert state[0]["data"]["text/plain"] == "'complete'"
    assert "95% CI" in "".join(output["text"] for output in evaluated)
    assert "episode_000.gif: score" in "".join(output["text"] for output in recorded)
    assert "image/gif" in film[0]["data"]
    assert len(read_jsonl(tmp_path / "scores.jsonl")) > 5
