"""A run of the reference goes on here, with its weights, its replay and its states, by the command that is shown."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.replay.archive import Archive
from tests.fleet import DEADLINE_S
from tests.migration.recorded_env import RecordedEnv
from tests.migration.reference import DATA

ROWS, STEPS = 60, 30


def write_replay(folder: Path, deter: int, stoch: int, classes: int) -> None:
    """One chunk, as the reference stores the steps of an agent of these sizes."""
    env, rows, is_last = RecordedEnv(), [], True
    for _ in range(ROWS):
        actions = {"discrete": np.int32(1), "continuous": np.zeros(2, np.float32)}
        obs = env.step({**actions, "reset": is_last})
        is_last = obs["is_last"]
        states = {"dyn/deter": np.zeros(deter, np.float32), "dyn/stoch": np.eye(classes, dtype=np.float32)[:stoch]}
        rows.append({**obs, **actions, **states, "stepid": np.zeros(20, np.uint8)})
    batch: dict[str, Any] = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    for path in folder.glob("*.npz"):
        path.unlink()
    np.savez_compressed(folder / f"20260101T000001F000-{1:022d}-{2:022d}-{ROWS}.npz", **batch)


@pytest.mark.distributed
def test_the_command_that_is_shown_goes_on(theirs, tmp_path):
    sizes = json.loads(DATA.with_suffix(".json").read_text())["sizes"]
    rssm = {key: sizes[key] for key in ("deter", "hidden", "stoch", "classes", "blocks")}
    simple = {"depth": sizes["depth"], "units": sizes["units"]}
    config = {
        "task": "recorded_env:RecordedEnv",
        "batch_size": 2,
        "batch_length": 8,
        "report_length": 4,
        "agent": {
            "dyn": {"rssm": rssm},
            "enc": {"simple": simple},
            "rewhead": {"bins": sizes["bins"]},
            "opt": {"lr": 1e-7},
        },
        "run": {"steps": STEPS, "envs": 2, "eval_envs": 0, "train_ratio": 16.0},
        "replay": {"size": 1000},
        "jax": {"platform": "cpu", "compute_dtype": "float32"},
    }
    with (theirs / "config.yaml").open("w") as stream:
        YAML().dump(config, stream)
    write_replay(theirs / "replay", sizes["deter"], sizes["stoch"], sizes["classes"])
    shown = run("import-reference", theirs, tmp_path / "ours")
    words = shlex.split(shown.partition("go on with:\n  dreamfleet ")[2].replace("\\\n", " "))
    run(*words, "--run.mode", "serial")
    checkpoint = Checkpoints(tmp_path / "ours").latest()
    assert checkpoint and checkpoint.step >= STEPS and checkpoint.manifest["updates"] > 0
    name = "model/rssm/gates/kernel"
    given, kept = Checkpoints.load(tmp_path / "ours" / "imported").read("agent")[name], checkpoint.read("agent")[name]
    assert (given != kept).any() and np.allclose(given, kept, atol=1e-5), "it learned, though hardly anything"
    assert Archive(tmp_path / "ours" / "replay" / "train").steps >= ROWS + STEPS, "new steps are beside the old ones"


def run(*words: object) -> str:
    command = [sys.executable, "-m", "dreamfleet", *map(str, words)]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
