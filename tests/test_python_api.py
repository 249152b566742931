"""`dreamfleet.train` as scripts and notebooks use it."""

import functools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dreamfleet
from dreamfleet.agent.random import RandomAgent
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import ConfigError, RunFailed
from tests.fleet import DEADLINE_S, eventually, read_inserts
from tests.test_runs import pids_of_roles, wait_gone

RANDOM = "dreamfleet.agent.random:RandomAgent"
SMALL = {"preset": "debug", "agent": RANDOM, "run": {"train_ratio": 4.0}}

# Everything is in `__main__`, without a guard: running it again would show.
SCRIPT = """
import sys
import gymnasium
import numpy as np
import dreamfleet

logdir, scenario = sys.argv[1:]
print("main", flush=True)


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.float32(0), {}

    def step(self, action):
        self.place += 1 if action else -1
        if scenario == "raise":
            raise ValueError("lost the way")  # line 23
        return np.float32(self.place), 1.0, abs(self.place) == 3, False, {}


agent = "dreamfleet.agent.random:RandomAgent"
run = dreamfleet.train(Walk, agent=agent, preset="debug", logdir=logdir, steps=0 if scenario == "endless" else 300,
                       run={"train_ratio": 4.0}, **{"run.max_restarts": 2})
print("started", flush=True)
run.wait()
print("scores", len(run.scores().value), run.status()["state"], run.status()["step"] >= 300, flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """Starts the script from a file, or like a notebook without one, in a session of its own; kills it in the end."""
    started = []

    def start_one(scenario: str, is_file: bool = True) -> subprocess.Popen:
        path = tmp_path / "walk.py"
        path.write_text(SCRIPT)
        command = [sys.executable, str(path) if is_file else "-", str(tmp_path / "run"), scenario]
        with path.open() as source, (tmp_path / "output").open("w") as output:
            streams = {"stdin": source, "stdout": output, "stderr": subprocess.STDOUT}
            started.append(
                subprocess.Popen(command, **streams, start_new_session=True, cwd=tmp_path, preexec_fn=heed_interrupts)
            )
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.wait()


def heed_interrupts() -> None:
    # A shell has its background jobs ignore the signal, and the tests may be run by one of them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_step(logdir: Path, step: int, process: subprocess.Popen | None = None) -> None:
    def is_there() -> bool:
        assert process is None or process.poll() is None, (logdir.parent / "output").read_text()
        return read_inserts(logdir) >= step

    eventually(is_there, f"step {step}")


@pytest.mark.distributed
@pytest.mark.parametrize("is_file", [True, False])
def test_script_with_its_own_environment(start, tmp_path, is_file):
    process = start("end", is_file)
    process.wait(DEADLINE_S)
    output = (tmp_path / "output").read_text()
    assert process.returncode == 0, output
    assert output.count("main\n") == 1
    (scores,) = re.findall(r"scores (\d+) complete True", output)
    assert int(scores) > 5
    assert re.search(r"step \d+/300", output), "progress is shown while it waits"


@pytest.mark.distributed
def test_errors_of_the_run_name_the_line_of_the_script(start, tmp_path):
    process = start("raise")
    process.wait(DEADLINE_S)
    output = (tmp_path / "output").read_text()
    assert process.returncode == 1
    assert re.search(r"dreamfleet.errors.RunRefused: preflight: .* ValueError: lost the way", output)
    assert f'File "{tmp_path}/walk.py", line 23, in step' in output


@pytest.mark.distributed
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_run_ends_in_order_with_the_script(start, tmp_path, number):
    logdir = tmp_path / "run"
    process = start("endless")
    wait_step(logdir, 100, process)
    launcher = int((logdir / "run.lock").read_text())
    pids = [launcher, *pids_of_roles(logdir)]
    assert len(pids) == 6
    os.killpg(process.pid, number)  # as the terminal does
    process.wait(DEADLINE_S)
    wait_gone(pids)
    checkpoint = Checkpoints(logdir).latest()
    assert checkpoint and checkpoint.step == checkpoint.manifest["replay"]["inserts"] >= 100
    assert ("stopping" in (tmp_path / "output").read_text()) == (number == signal.SIGINT)


@pytest.mark.distributed
def test_stop_and_resume(tmp_path):
    class Lazy(RandomAgent):
        def train(self, carry, data):
            return carry, {}, {"laziness": 1.0}

    with dreamfleet.train("dummy_vector", logdir=tmp_path, eval_envs=1, **{**SMALL, "agent": Lazy}) as run:
        assert not run.wait(0.0, show=False)
        wait_step(tmp_path, 200)
        eventually(lambda: len(run.scores(is_eval=True).value), "the score of an eval episode")
        pids = pids_of_roles(tmp_path)
        assert "Run running step" in repr(run) or "Run starting step" in repr(run)
    wait_gone(pids)
    assert run.wait() == "stopped" == run.status()["state"]
    stopped_at = run.status()["step"]
    assert stopped_at >= 200 and Checkpoints(tmp_path).latest()
    assert (run.metrics()["train/laziness"].value == 1).all()

    run = dreamfleet.train(
        "dummy_vector", logdir=tmp_path, steps=stopped_at + 200, eval_envs=1, **{**SMALL, "agent": Lazy}
    )
    assert run.status()["state"] in ("starting", "running"), "not that of the first life"
    assert run.wait(show=False) and read_inserts(tmp_path) >= stopped_at + 200
    steps, scores = run.scores()
    assert len(steps) == len(scores) and (np.diff(steps) >= 0).all() and (scores > 0).any()
    assert run.metrics()["frames"].step[-1] == run.metrics()["frames"].value[-1]


@pytest.mark.distributed
def test_serial_mode_and_frames(tmp_path):
    config = {**SMALL, "run": {"mode": "serial", "steps": 200, "train_ratio": 4.0, "envs": 1}}
    run = dreamfleet.train("gym_CartPole-v1", logdir=tmp_path, **config, **{"env.gym.repeat": 3})
    assert run.wait(DEADLINE_S)
    steps, frames = run.metrics()["frames"]
    assert (frames == 3 * steps).all() and steps[-1] >= 200


@pytest.mark.distributed
def test_failures_are_raised_by_every_wait(tmp_path):
    def broken():
        raise RuntimeError("out of licences")

    run = dreamfleet.train(broken, logdir=tmp_path, **{**SMALL, "run": {"max_restarts": 1}})
    for _ in range(2):
        with pytest.raises(RunFailed, match="RuntimeError: out of licences"):
            run.wait(DEADLINE_S)
    assert run.status()["state"] == "failed"
    run.stop()


@pytest.mark.distributed
def test_a_killed_launcher_is_a_failure(tmp_path):
    run = dreamfleet.train("dummy_vector", logdir=tmp_path, **SMALL)
    wait_step(tmp_path, 50)
    os.kill(int((tmp_path / "run.lock").read_text()), signal.SIGKILL)
    with pytest.raises(RunFailed, match=r"killed by SIGKILL\nLog file: .*launcher\.log"):
        run.wait(DEADLINE_S)


@pytest.mark.distributed
def test_a_directory_in_use_is_refused(tmp_path):
    with dreamfleet.train("dummy_vector", logdir=tmp_path, **SMALL) as first:
        wait_step(tmp_path, 20)
        with pytest.raises(ConfigError, match="is in use by process"):
            dreamfleet.train("dummy_vector", logdir=tmp_path, **SMALL).wait(DEADLINE_S)
        assert not first.wait(0.0)


@pytest.mark.parametrize(
    ("task", "config", "part"),
    [
        ("dummy_vector", {"run": {"env": 3}}, "unknown option run.env; did you mean run.envs?"),
        ("dummy_vector", {"preset": "debgu"}, "did you mean debug?"),
        ("gmy_CartPole-v1", {}, "did you mean gym_CartPole-v1?"),
        (functools.partial, {"batch_size": 0}, "batch_size=0 must be at least 1"),
        (3, {}, "task=3 is neither a name nor can it be called"),
    ],
)
def test_what_cannot_work_is_refused_at_once(tmp_path, task, config, part):
    with pytest.raises(ConfigError) as caught:
        dreamfleet.train(task, logdir=tmp_path / "run", **config)
    assert part in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_sent_is_refused(tmp_path):
    with (tmp_path / "file").open("w") as file, pytest.raises(ConfigError, match="cannot be sent to other processes"):
        dreamfleet.train(lambda: file, logdir=tmp_path / "run", **SMALL)


@pytest.mark.distributed
def test_importing_dreamfleet_is_light():
    code = "import sys; before = set(sys.modules); import dreamfleet; print(*(set(sys.modules) - before))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert {name for name in result.stdout.split() if "typing" not in name} <= {"dreamfleet", "collections.abc"}
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        dreamfleet.trian  # noqa: B018


@pytest.mark.parametrize(
    ("task", "reason"), [("gym_CartPole-v99", "cannot be made"), ("atari_pongg", "not one of"), ("", "no environment")]
)
def test_a_task_that_does_not_exist_is_refused_at_once(tmp_path, task, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        dreamfleet.train(task, logdir=tmp_path / "run")
    assert caught.value.key == "task" and not (tmp_path / "run").exists()
