"""`dreamfleet demo`: trains, then evaluates, plots and films, and says how the rest can be seen."""

import sys

import pytest

from dreamfleet.cli import main

# The random agent, for a moment; batches that fit into so few steps.
QUICK = ["--agent", "dreamfleet.agent.random:RandomAgent", "--run.mode", "serial", "--replay.capacity", "1000"]
QUICK += ["--batch_size", "4", "--batch_length", "8", "--report_length", "4", "--run.train_ratio", "4"]


@pytest.mark.parametrize(("steps", "kept"), [(400, "best"), (60, "latest")])
def test_everything_is_shown(tmp_path, capfd, steps, kept):
    logdir = tmp_path / "demo"
    assert main(["demo", "--logdir", str(logdir), "--steps", str(steps), *QUICK]) == 0
    lines = capfd.readouterr().out.splitlines()
    commands = [line.split()[2] for line in lines if line.startswith("$ dreamfleet ")]
    assert commands == ["train", "eval", "plot", "record"]
    assert f"$ dreamfleet eval {logdir} --checkpoint {kept} --episodes 40" in lines
    assert any(line.startswith("mean") and "[" in line for line in lines), "the score with its interval"
    assert f"wrote {logdir}/curve.png" in lines and (logdir / "curve.png").read_bytes().startswith(b"\x89PNG")
    (film,) = [line.split(": score")[0] for line in lines if ".mp4: score" in line]
    assert film.startswith(f"{logdir}/videos/step-")
    assert lines[-1].endswith(f"dreamfleet dashboard {logdir}")


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
