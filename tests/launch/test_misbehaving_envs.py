"""A run whose environments cannot work ends, soon and with one clear message: before it starts, where that shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dreamfleet
from dreamfleet.errors import RunRefused
from tests.fleet import DEADLINE_S
from tests.launch import misbehaving

pytestmark = pytest.mark.distributed

SMALL = ("--preset", "debug", "random", "--run.envs", "3", "--run.max_restarts", "3", "--steps", "400")


def run(tmp_path: Path, *words: object) -> subprocess.CompletedProcess:
    environ = {**os.environ, "MISBEHAVING": str(tmp_path / "marker")}
    paths = [str(Path(misbehaving.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ["PYTHONPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-m", "dreamfleet", *map(str, words)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def train(tmp_path: Path, name: str, *words: object) -> subprocess.CompletedProcess:
    return run(tmp_path, "train", *SMALL, "--task", f"misbehaving:{name}", "--logdir", tmp_path / "run", *words)


REFUSED = {
    "RaisesInConstructor": ("RuntimeError: out of licences", "in __init__"),
    "RaisesInReset": ("RuntimeError: no connection to the simulator", "in reset"),
    "RaisesInStep": ("RuntimeError: the heater is on fire", "in step"),
    "RaisesInRenderer": ("OSError: cannot open display", "in render"),
    "Nan": ("'vector' has NaN or infinity in it", ""),
    "NanReward": ("'reward' has NaN or infinity in it", ""),
    "WrongShape": ("(4,)", ""),
    "WrongDtype": ("float64", ""),
    "Aborts": ("killed by SIGABRT", "logs/preflight.log"),
    "Exits": ("called sys.exit", "in step"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_the_fleet_starts(tmp_path, name):
    result = train(tmp_path, name)
    text = result.stdout + result.stderr
    assert result.returncode == 2, text
    assert f"task='misbehaving:{name}'" in result.stderr
    assert all(part in result.stderr for part in REFUSED[name]), text
    assert len(text.splitlines()) <= 12, text
    assert f"{Path(dreamfleet.__file__).parent}/" not in text, "frames that are not the user's"
    assert [path.name for path in (tmp_path / "run" / "logs").iterdir()] == ["preflight.log"]


def test_it_is_refused_in_serial_mode_and_when_it_joins_from_elsewhere(tmp_path):
    assert train(tmp_path, "Nan", "--run.mode", "serial").returncode == 2
    addresses = ("--addr-actor", "localhost:1", "--addr-logger", "localhost:2", "--run.transport", "portal")
    task = ("--task", "misbehaving:Nan", "--logdir", tmp_path / "joined")
    result = run(tmp_path, "role", "envs", *addresses, *task)
    assert result.returncode == 2 and "'vector' has NaN or infinity in it" in result.stderr, result


def test_it_is_refused_from_python(tmp_path):
    class Own(misbehaving.Good):
        def step(self, action):
            raise RuntimeError("mine")

    started = dreamfleet.train(Own, preset=["debug", "random"], logdir=str(tmp_path / "run"), envs=2)
    with started, pytest.raises(RunRefused, match=r"(?s)RuntimeError: mine.*in step"):
        started.wait(DEADLINE_S, show=False)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("late_raise", "RuntimeError: the heater is on fire"),
        ("late_abort", "killed by SIGABRT"),
        ("late_nan", "has NaN or infinity in it"),
        ("late_exit", "called sys.exit"),
    ],
)
def test_it_ends_the_run_when_it_misbehaves_later(tmp_path, name, part):
    result = train(tmp_path, name)
    text = result.stdout + result.stderr
    assert result.returncode == 1, text
    assert part in result.stderr and "died 3 times without progress" in result.stderr, text
    assert len(text.splitlines()) <= 50, text
    if name == "late_raise":
        assert text.count('misbehaving.py", line') <= 3, "told once where it happened, and at the end\n" + text
        log = (tmp_path / "run" / "logs" / "env0.log").read_text()
        assert "Traceback (most recent call last)" in log and "group.py" in log, "all of it is in the log"


def test_one_that_fails_rarely_is_trained_on(tmp_path):
    result = train(tmp_path, "Flaky")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "warning: environment: RuntimeError: a glitch" in result.stdout
    assert result.stdout.count("failed, rebuilding it: RuntimeError: a glitch") <= 3, result.stdout
