"""Three finished runs for the commands that look at runs; JAX compiles quickly here rather than well."""

import sys
from pathlib import Path

import pytest

from tests import quick_jax

quick_jax.set_up()

from dreamfleet.cli import main  # noqa: E402

DREAMER = ["--agent", "dreamfleet.agent.dreamer:Dreamer", "--dreamer.size", "debug"]
# The run ends before there are enough steps for an update, which would take long to compile.
SHORT = ["--steps", "100", "--envs", "2", "--batch_size", "4", "--batch_length", "32", "--report_length", "8"]
QUICK = ["--run.mode", "serial", "--run.report_every", "0", "--replay.capacity", "1000", "--jax.cache="]


@pytest.fixture(scope="session")
def make_run(tmp_path_factory):
    """Trains for a moment and returns the log directory."""

    def make(*options: str) -> Path:
        logdir = tmp_path_factory.mktemp("runs") / "run"
        assert main(["train", "--logdir", str(logdir), *SHORT, *QUICK, "--jax.train_devices", "1", *options]) == 0
        return logdir

    return make


@pytest.fixture(scope="session")
def random_run(make_run) -> Path:
    agent = ["--agent", "dreamfleet.agent.random:RandomAgent"]
    return make_run(*agent, "--task", "dummy_vector", "--env.dummy.length", "10")


@pytest.fixture(scope="session")
def vector_run(make_run) -> Path:
    return make_run(*DREAMER, "--task", "gym_CartPole-v1")


@pytest.fixture(scope="session")
def image_run(make_run) -> Path:
    options = ["--task", "dummy_image", "--env.dummy.size", "32", "--env.dummy.length", "12"]
    return make_run(*DREAMER, *options, "--dreamer.imag_length", "3")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refusal(capsys):
    """Runs a command that must be refused, and returns its one line."""

    def run(*argv: str) -> str:
        capsys.readouterr()
        assert main(argv) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.startswith("error: ") and captured.err.count("\n") == 1
        return captured.err

    return run
