"""`dreamfleet demo`: trains, then evaluates, plots and films, and says how the rest can be seen."""

import re
import shlex
import sys

from dreamfleet.cli import main
from dreamfleet.commands import demo

# The random agent, for a moment; batches that fit into so few steps.
QUICK = ["--agent", "dreamfleet.agent.random:RandomAgent", "--run.mode", "serial", "--replay.capacity", "1000"]
QUICK += ["--batch_size", "4", "--batch_length", "8", "--report_length", "4", "--run.train_ratio", "4"]


def test_everything_is_shown(tmp_path, capfd):
    logdir = tmp_path / "demo"
    assert main(["demo", "--logdir", str(logdir), "--steps", "300", "--run.save_every_steps", "150", *QUICK]) == 0
    lines = capfd.readouterr().out.splitlines()
    commands = [line.split()[2] for line in lines if line.startswith("$ dreamfleet ")]
    assert commands == ["train", "eval", "plot", "record"]
    means = {line.split()[0]: float(line.split()[1]) for line in lines if re.fullmatch(r"step-[\d-]+ +[\d.]+", line)}
    assert set(means) == {path.name for path in (logdir / "ckpt").glob("step-*")} and len(means) >= 2
    best = max(means, key=lambda name: (means[name], name))
    assert f"$ dreamfleet eval {logdir} --checkpoint {best} --episodes 40" in lines
    assert any(line.startswith("mean") and "[" in line for line in lines), "the score with its interval"
    assert f"wrote {logdir}/curve.png" in lines and (logdir / "curve.png").read_bytes().startswith(b"\x89PNG")
    (film,) = [line.split(": score")[0] for line in lines if ".mp4: score" in line]
    assert film.startswith(f"{logdir}/videos/{best}/")
    assert lines[-1].endswith(f"dreamfleet dashboard {logdir}")


def test_training_goes_on_until_a_checkpoint_is_good(tmp_path, capfd, monkeypatch):
    """A random policy never is, in a run of the user's own length: that of the preset takes minutes."""
    monkeypatch.setattr(demo, "MORE_STEPS", (200, 300))
    train = ["demo", "--logdir", str(tmp_path / "demo"), "--steps", "100", *QUICK]
    for is_own, steps in ((False, ["100"]), (True, ["100", "200", "300"])):
        if is_own:
            monkeypatch.setattr(demo, "OTHER_RUN", re.compile("--task"))
        assert main(train) == 0
        lines = capfd.readouterr().out.splitlines()
        commands = [shlex.split(line)[2:] for line in lines if line.startswith("$ dreamfleet ")]
        assert [words[-1] if words[-2] == "--steps" else "100" for words in commands if words[0] == "train"] == steps
        assert sum("of 500: training goes on" in line for line in lines) == len(steps) - 1
        assert [words[0] for words in commands][-3:] == ["eval", "plot", "record"]
    assert int(sorted((tmp_path / "demo" / "ckpt").glob("step-*"))[-1].name.split("-")[1]) >= 300


def test_what_is_not_installed_is_told_first_and_left_out(tmp_path, capfd, monkeypatch):
    for module in ("matplotlib", "av"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["demo", "--logdir", str(tmp_path / "demo"), "--steps", "60", *QUICK]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "without plot and video" in lines[0] and "[plot,video]'" in lines[0]
    assert [line.split()[2] for line in lines if line.startswith("$ dreamfleet ")] == ["train", "eval"]


def test_a_run_that_is_refused_is_not_shown(tmp_path, capfd):
    assert main(["demo", "--logdir", str(tmp_path / "demo"), "--run.env", "3"]) == 2
    captured = capfd.readouterr()
    assert "did you mean --run.envs?" in captured.err and "dreamfleet eval" not in captured.out
