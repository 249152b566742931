"""A policy learned from recorded episodes alone: CartPole, played by controllers that are worse than it gets."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest

import dreamfleet
from dreamfleet.cli import main
from dreamfleet.metrics.reading import read_series
from tests.learning.test_learning import train

pytestmark = [pytest.mark.learning, pytest.mark.distributed, pytest.mark.timeout(1800)]

TASK = "gym_CartPole-v1"
EPISODES = 200
UPDATES = 3000


def record(directory: Path, seed: int) -> list[float]:
    """Episodes of a controller that acts at random for a fifth of the time or more, every fourth for all of it.

    It steers to a place that may be beyond the edge: without carts that went over it, nobody could learn to avoid that.
    """
    directory.mkdir()
    rng, env, scores = np.random.default_rng(seed), dreamfleet.make_env(TASK, seed), []
    for number in range(EPISODES):
        noise = 1.0 if number % 4 == 0 else rng.uniform(0.2, 0.8)
        rows = play(env, rng, noise, target=rng.uniform(-3.0, 3.0))
        np.savez(directory / f"{number:04}.npz", **{key: np.stack([row[key] for row in rows]) for key in rows[0]})
        scores.append(float(sum(row["reward"] for row in rows)))
    return scores


def play(env: dreamfleet.Env, rng: np.random.Generator, noise: float, target: float) -> list[dict]:
    """One episode; each row has an observation and the action that followed."""
    rows, act = [], {"action": np.int32(0), "reset": np.bool_(True)}
    while not rows or not rows[-1]["is_last"]:
        obs = env.step(act)
        position, velocity, angle, rotation = obs["vector"]
        action = angle + 0.5 * rotation + 0.05 * (position - target) + 0.1 * velocity > 0
        action = rng.integers(2) if rng.random() < noise else action
        act = {"action": np.int32(action), "reset": np.bool_(False)}
        rows.append({**obs, "action": act["action"]})
    return rows


def evaluate(logdir: Path) -> list[float]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(["eval", str(logdir), "--episodes", "40", "--json"]) == 0
    return json.loads(output.getvalue())["scores"]


def learn(directory: Path, seed: int) -> tuple[list[float], list[float]]:
    """The scores that were recorded, and those of the policy that was learned from them."""
    recorded = record(directory / "episodes", seed)
    assert main(["replay", "import", str(directory / "episodes"), str(directory / "run"), "--held-out", "0.1"]) == 0
    words = ["--task", TASK, "--envs", "0", "--updates", str(UPDATES), "--seed", str(seed)]
    words += ["--replay.uniform", "1", "--replay.recency", "0", "--run.report_every", "20"]
    # With a smaller rate the critic does not learn in time what a slow drift to the edge leads to.
    words += ["--dreamer.learning_rate", "1e-3", "--dreamer.decay", str(UPDATES)]
    train(directory / "run", *words)
    return recorded, evaluate(directory / "run")


def test_cartpole_from_recorded_episodes_alone(tmp_path):
    recorded, learned = learn(tmp_path, seed=0)
    print(f"recorded: mean {np.mean(recorded):.0f}, learned: mean {np.mean(learned):.0f}, min {min(learned):.0f}")
    assert np.mean(recorded) < 200
    assert np.mean(learned) > 400, learned
    metrics = read_series(tmp_path / "run" / "metrics.jsonl")
    held_out = metrics["eval/loss/vector"].value[-3:].mean()
    assert held_out < 0.2, "what was not trained on is predicted, too; before the first update it is above 1"
