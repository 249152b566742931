"""Every suite as a user meets it: `check-env`, and 200 random steps through a fleet."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dreamfleet.envs import check_task
from dreamfleet.errors import ConfigError
from tests.fleet import DEADLINE_S, read_inserts

pytestmark = pytest.mark.distributed

TASKS = (
    "dummy_image",
    "gym_CartPole-v1",
    "gym_Pendulum-v1",
    "atari_pong",
    "atari100k_breakout",
    "dmc_cartpole_swingup",
    "crafter_reward",
    "minigrid_Empty-5x5-v0",
    "bsuite_catch/0",
    "memorymaze_9x9",
    "procgen_coinrun",
    "pinpad_three",
    "langroom_answer-only",
    "loconav_ant_maze_s",
    "dmlab_explore_goal_locations_small",
    "minecraft_wood",
)
# Nothing in the first two is left to chance; Crafter's creatures depend on where objects are in memory.
WITHOUT_SEED = ("atari100k_breakout", "minigrid_Empty-5x5-v0", "crafter_reward")


def run(*words: object, directory: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "dreamfleet", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=directory)


@pytest.fixture(params=TASKS)
def task(request):
    try:
        check_task(request.param)
    except ConfigError as error:
        pytest.skip(str(error))
    return request.param


def test_check_env_finds_no_error(task, tmp_path):
    result = run("check-env", task, "--steps", 50, "--json", directory=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert report["ok"] and report["facts"]["steps_per_s"] > 0
    expected = {"speed", "memory", "seeds"} if task in WITHOUT_SEED else {"speed", "memory"}
    assert {f["check"] for f in report["findings"] if f["level"] == "warning"} <= expected


def test_random_steps_through_the_fleet(task, tmp_path):
    options = ["--agent", "dreamfleet.agent.random:RandomAgent", "--steps", 200, "--env.dummy.size", 64]
    result = run("train", "--preset", "debug", "--task", task, *options, "--logdir", tmp_path, directory=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert read_inserts(tmp_path) >= 200
    logs = {path.name: path.read_text() for path in (tmp_path / "logs").glob("env*.log")}
    assert len(logs) == 2 and not any("raised" in text for text in logs.values()), logs


@pytest.mark.parametrize("mode", ["parallel", "serial"])
def test_an_experiment_ends_the_run_after_its_episodes(mode, tmp_path):
    """Of bsuite, with all but a hundred of its ten thousand episodes done."""
    pytest.importorskip("bsuite", reason="needs pip install 'dreamfleet[bsuite]'")
    results = tmp_path / "bsuite"
    results.mkdir()
    (results / "bandit-0.json").write_text('{"steps": 9900, "episode": 9900, "total_return": 0, "total_regret": 0}')
    options = ["--agent", "dreamfleet.agent.random:RandomAgent", "--run.mode", mode, "--eval-envs", 1]
    words = ["train", "--preset", "bsuite", "debug", "--task", "bsuite_bandit/0", *options, "--logdir", tmp_path]
    result = run(*words, "--envs", 1, directory=tmp_path)
    assert result.returncode == 0 and "complete" in result.stdout + result.stderr, result.stdout + result.stderr
    assert 100 <= read_inserts(tmp_path) < 20_000, "two rows an episode; the last may still have waited for the learner"
    lines = (results / "bsuite_id_-_bandit-0.csv").read_text().splitlines()
    assert lines[0].startswith("steps,episode,total_return,total_regret") and lines[-1].startswith("10000,10000,")
    again = run(*words, "--envs", 1, directory=tmp_path)
    assert again.returncode == 0 and "complete" in again.stdout + again.stderr, again.stdout + again.stderr
    assert (results / "bsuite_id_-_bandit-0.csv").read_text().splitlines() == lines, "what is over is not gone on with"
