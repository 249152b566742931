"""`dreamfleet eval`: what is printed, which run, checkpoint and task are used, and what is refused."""

import json
import shutil

import pytest
from ruamel.yaml import YAML

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.cli import main
from dreamfleet.options import load_options, save_options

HARDER = """
import gymnasium

class Harder(gymnasium.Wrapper):
    def __init__(self, seed=0):
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=5))
        print("a word from the environment")
"""


@pytest.fixture
def evaluate(capsys):
    """Runs the command with --json and returns what it prints."""

    def run(*argv) -> dict:
        capsys.readouterr()
        assert main(["eval", *map(str, argv), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_a_run_with_a_known_score(random_run, capsys):
    capsys.readouterr()
    assert main(["eval", str(random_run), "--episodes", "5"]) == 0
    out = capsys.readouterr().out
    assert "dummy_vector | 5 episodes | step 100 (step-000000000100-0001)" in out
    for name in ("mean", "median", "IQM"):
        assert f"{name:<8}     10.00   [10.00, 10.00]\n" in out
    assert "min 10.00, max 10.00, std 0.00, mean episode length 10.0" in out


def test_json_has_everything(random_run, evaluate):
    result = evaluate(random_run, "--episodes", "3", "--envs", "2")
    assert result["scores"] == [10.0] * 3 and result["lengths"] == [10] * 3
    assert result["mean"] == {"value": 10.0, "low": 10.0, "high": 10.0} and result["iqm"] == result["median"]
    assert (result["step"], result["task"], result["logdir"]) == (100, "dummy_vector", str(random_run))


def test_dreamer_is_deterministic_for_a_seed(vector_run, evaluate):
    first, again = (evaluate(vector_run, "--episodes", "4", "--envs", "2") for _ in range(2))
    other = evaluate(vector_run, "--episodes", "4", "--envs", "2", "--seed", "5")
    assert first["scores"] == again["scores"] != other["scores"]
    assert all(8 <= score <= 200 for score in first["scores"])


def test_best_and_latest(make_run, evaluate, refusal):
    options = ["--agent", "dreamfleet.agent.random:RandomAgent", "--task", "dummy_vector", "--env.dummy.length", "5"]
    logdir = make_run(*options, "--batch_length", "8", "--run.save_every_steps", "40", "--run.keep", "9")
    steps = [path.name.split("-")[1] for path in sorted((logdir / "ckpt").glob("step-*"))]
    assert [int(step) // 40 for step in steps] == [1, 2, 2], "each time that 40 steps more are there, and at the end"
    scored = [c for c in (Checkpoints.load(path) for path in (logdir / "ckpt").glob("step-*")) if c.score is not None]
    best = max(scored, key=lambda checkpoint: checkpoint.step)  # all have the same score: the newest counts
    assert best.score == 5.0
    draft = Checkpoints(logdir, keep=9).draft(200)  # without a score, since no episodes ended before it
    draft.write("agent", best.read("agent"))
    draft.commit({"updates": 0, "elapsed_s": 0.0})
    assert evaluate(logdir, "--episodes", "1", "--checkpoint", "best")["checkpoint"] == best.name
    assert evaluate(logdir, "--episodes", "1", "--checkpoint", "latest")["step"] == 200
    assert "did you mean best?" in refusal("eval", str(logdir), "--checkpoint", "bset")


def test_best_without_a_score(vector_run, refusal):
    line = refusal("eval", str(vector_run), "--checkpoint", "best")
    assert "checkpoint" in line and "has no checkpoint with a score" in line and "latest" in line


def test_the_checkpoint_decides(vector_run, evaluate, tmp_path):
    """An agent whose policy was made to push to one side only does badly, and only with that checkpoint."""
    logdir = tmp_path / "copy"
    shutil.copytree(vector_run, logdir)
    checkpoint = Checkpoints.load(logdir)
    state = checkpoint.read("agent")
    (bias,) = [name for name in state if name.startswith("model/actor/") and state[name].shape == (2,)]
    draft = Checkpoints(logdir).draft(200)
    draft.write("agent", {**state, bias: state[bias] + [100.0, 0.0]})
    draft.commit({"updates": 0, "elapsed_s": 0.0})
    newest = evaluate(logdir, "--episodes", "3")
    assert newest["step"] == 200 and newest["max"] <= 11
    for given in (checkpoint.name, logdir / "ckpt" / checkpoint.name):
        assert evaluate(logdir, "--episodes", "3", "--checkpoint", given)["step"] == 100
    assert newest["scores"] != evaluate(logdir, "--episodes", "3", "--checkpoint", checkpoint.name)["scores"]


def test_another_task(vector_run, evaluate, tmp_path):
    (tmp_path / "harder_to_eval.py").write_text(HARDER)
    result = evaluate(vector_run, "--task", "harder_to_eval:Harder", "--episodes", "2")
    assert result["scores"] == [5.0, 5.0] and result["task"] == "harder_to_eval:Harder"


def test_a_task_that_does_not_fit(vector_run, refusal):
    line = refusal("eval", str(vector_run), "--task", "gym_Acrobot-v1")
    assert "task='gym_Acrobot-v1' does not fit step-000000000100-0001 (the checkpoint has other shapes" in line


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--episodes", "0"], "episodes=0 is too small"),
        (["--envs", "0"], "envs=0 is too small"),
        (["--checkpoint", "nope"], "checkpoint='nope' cannot be read"),
        (["--episode", "3"], "did you mean --episodes"),
        (["--task", "chess"], "task='chess' names an unknown suite"),
        (["--agent", "nothing:Agent"], "names module nothing"),
    ],
)
def test_wrong_options(random_run, refusal, options, part):
    assert part in refusal("eval", str(random_run), *options)


@pytest.mark.parametrize("command", ["eval", "record", "export"])
class TestRunsThatCannotBeUsed:
    @pytest.fixture
    def refused(self, command, refusal, tmp_path):
        options = ["--out", str(tmp_path / "out")] if command == "export" else []
        return lambda logdir: refusal(command, str(logdir), *options)

    def test_no_directory(self, refused):
        assert "logdir='/nowhere/at/all' is not a directory; name the --logdir" in refused("/nowhere/at/all")

    def test_no_run(self, refused, tmp_path):
        assert "holds no run (there is no config.yaml in it)" in refused(tmp_path)

    def test_a_directory_of_runs(self, refused, tmp_path):
        save_options(load_options({"logdir": str(tmp_path / "seed_3")}))
        assert "holds no run" in (line := refused(tmp_path)) and "name one of those inside it: seed_3" in line

    def test_no_checkpoint_yet(self, refused, tmp_path):
        save_options(load_options({"logdir": str(tmp_path), "agent": "a:B"}))
        line = refused(tmp_path)
        assert "has not saved a checkpoint yet; wait for the first one (run.save_every=900.0 s)" in line

    def test_an_unknown_option_is_named_and_is_not_the_reason(self, refused, tmp_path, caplog):
        path = save_options(load_options({"logdir": str(tmp_path), "agent": "a:B"}))
        path.write_text(f"train_rato: 3\n{path.read_text()}")
        assert "has not saved a checkpoint yet" in refused(tmp_path)
        warning = (
            f"{path}: this version does not know the option train_rato=3 and ignores it; did you mean run.train_ratio"
        )
        assert caplog.text.count(warning) == 1

    def test_config_that_is_damaged(self, refused, tmp_path):
        (tmp_path / "config.yaml").write_text("task: [")
        assert "holds a config.yaml that cannot be read" in refused(tmp_path)

    def test_checkpoints_that_are_damaged(self, refused, random_run, tmp_path, caplog):
        logdir = tmp_path / "damaged"
        shutil.copytree(random_run, logdir)
        for part in logdir.glob("ckpt/*/agent.bin"):
            part.write_bytes(b"nothing")
        assert "checkpoints are all damaged" in refused(logdir) and "is skipped" in caplog.text

    def test_help_has_an_example(self, command, capsys):
        assert main([command, "--help"]) == 0
        text = capsys.readouterr().out
        assert (
            "examples:" in text
            and f"dreamfleet {command} ~/logdir/" in text
            and "--checkpoint best|latest|NAME" in text
        )


def test_options_that_an_older_version_did_not_have_get_their_defaults(random_run, evaluate, tmp_path, caplog):
    logdir = tmp_path / "older"
    shutil.copytree(random_run, logdir)
    yaml = YAML(typ="safe")
    config = yaml.load(logdir / "config.yaml")
    del config["run"]["keep"]
    yaml.dump(config, logdir / "config.yaml")
    assert evaluate(logdir, "--episodes", "1")["scores"] == [10.0]
    assert "saved by a version without run.keep; using the defaults" in caplog.text


def test_a_run_of_a_machine_with_more_devices(vector_run, evaluate, tmp_path):
    logdir = tmp_path / "elsewhere"
    shutil.copytree(vector_run, logdir)
    yaml = YAML(typ="safe")
    config = yaml.load(logdir / "config.yaml")
    config["jax"].update(train_devices=64, policy_device=63, sharding="sharded")
    yaml.dump(config, logdir / "config.yaml")
    assert len(evaluate(logdir, "--episodes", "1")["scores"]) == 1
