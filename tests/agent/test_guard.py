"""A loss that is no number ends a whole run, and what was good before it stays."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from dreamfleet.checkpoint import Checkpoints
from tests.fleet import DEADLINE_S, eventually

pytestmark = pytest.mark.distributed

ENV = """
from pathlib import Path

from dreamfleet.testing import PROBES


class Poisoned(PROBES["delayed"]):
    def move(self, action):
        obs, reward, done = super().move(action)
        return obs, 3e38 if Path("poison").exists() else reward, done  # a float32, but the sum of two is not
"""


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    logdir = tmp_path / "run"
    (tmp_path / "poisoned.py").write_text(ENV)
    options = {"task": "poisoned:Poisoned", "logdir": logdir, "run.save_every": 1, "run.report_every": 0}
    options |= {"dreamer.imag_length": 3, "jax.train_devices": 1, "jax.cache": os.environ["JAX_COMPILATION_CACHE_DIR"]}
    command = [sys.executable, "-m", "dreamfleet", "train", "--preset", "debug"]
    command += [word for key, value in options.items() for word in (f"--{key}", str(value))]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=output, stderr=output)
        try:
            eventually(lambda: Checkpoints(logdir).latest() or process.poll() is not None, "a checkpoint")
            (tmp_path / "poison").touch()
            process.wait(DEADLINE_S)
        finally:
            process.kill()
    text = (tmp_path / "output").read_text()
    assert process.returncode == 1, text
    assert "agent failed: NonFiniteLoss: the loss replay_value is not finite at update" in text
    with np.load(logdir / "bad_batch.npz") as batch:
        assert batch["reward"].max() > 1e38
    assert json.loads((logdir / "status.json").read_text())["roles"]["agent"]["restarts"] == 0
    checkpoint = Checkpoints(logdir).latest()
    assert checkpoint is not None
    assert all(np.isfinite(value).all() for value in checkpoint.read("agent").values())
