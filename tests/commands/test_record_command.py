"""`dreamfleet record`: the files that it writes can be played and show what they should."""

import shutil
import sys

import numpy as np
import pytest
from PIL import Image, ImageSequence
from ruamel.yaml import YAML

from dreamfleet.base.extras import install_command
from dreamfleet.cli import main
from dreamfleet.results.captions import LEFT, TOP
from dreamfleet.results.video import SHORT_SIDE
from tests.results.videos import read_mp4


def test_rendered_episodes_and_no_dreams_without_images(vector_run, tmp_path, capfd, monkeypatch):
    for name in ("XDG_RUNTIME_DIR", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert main(["record", str(vector_run), "--episodes", "2", "--out", str(tmp_path / "videos"), "--fps", "20"]) == 0
    out, errors = capfd.readouterr()
    assert "XDG_RUNTIME_DIR" not in errors, "it tried to open a window"
    files = sorted(path.name for path in (tmp_path / "videos").iterdir())
    assert files == ["episode_000.gif", "episode_000.mp4", "episode_001.gif", "episode_001.mp4"]
    assert "no open-loop predictions: gym_CartPole-v1 has no image observations" in out
    (line,) = [line for line in out.splitlines() if "episode_001.mp4" in line]
    count = int(line.rsplit(", ", 1)[1].split()[0])
    assert f"score {count - 1}.0" in line
    frames = read_mp4(tmp_path / "videos" / "episode_001.mp4")
    assert frames.shape == (count, 400, 600, 3)
    assert frames.min() < 20 and frames.max() > 240, "a cart and a background"
    with Image.open(tmp_path / "videos" / "episode_001.gif") as image:
        times_ms = [frame.info["duration"] for frame in ImageSequence.Iterator(image)]
    assert sum(times_ms) == 50 * count, "pictures that stay the same are stored once and shown for longer"


def test_observed_images_and_dreams(image_run, capsys):
    options = ["--dreams", "2", "--report_length", "6", "--max-frames", "5"]
    assert main(["record", str(image_run), *options]) == 0
    out = capsys.readouterr().out
    (folder,) = (image_run / "videos").iterdir()
    assert folder.name == "step-000000000100-0001"
    assert "score 12.0, 13 frames (first 5 recorded)" in out
    assert len(read_mp4(folder / "episode_000.mp4")) == 5
    dream = read_mp4(folder / "dream_image.mp4")
    factor = SHORT_SIDE // 64
    height, width = TOP + 3 * 32 * factor, LEFT + 2 * 32 * factor
    assert dream.shape == (6, height, width, 3), "three rows, two sequences side by side"
    marks = dream[:, TOP - 3, LEFT + 8].astype(int)
    is_red = marks[:, 0] > marks[:, 1]
    assert is_red.tolist() == [False] * 3 + [True] * 3, "the line above the rows tells where the context ends"
    assert (dream[:, TOP:, :LEFT].max(axis=(2, 3)) > 150).any(axis=1).all(), "the rows have labels"
    dream = dream[:, TOP:, LEFT:]
    truth = read_mp4(folder / "episode_000.mp4")[1]
    side = 32 * factor
    episode = np.asarray(Image.fromarray(truth).resize((side, side), Image.Resampling.BOX), int)
    other = np.asarray(Image.fromarray(np.asarray(dream[0][side : 2 * side, :side])), int)
    error = np.abs(dream[0][:side, :side].astype(int) - episode).mean()
    assert error < 0.5 * np.abs(other - episode).mean(), "the upper row is the truth, the one below is not"
    shutil.rmtree(image_run / "videos")


@pytest.mark.parametrize("formats", [["mp4"], ["gif"]])
def test_formats(random_run, tmp_path, formats, image_run):
    argv = ["--dreams", "0", "--formats", *formats, "--out", str(tmp_path / "videos")]
    assert main(["record", str(image_run), *argv]) == 0
    assert [path.suffix[1:] for path in (tmp_path / "videos").iterdir()] == formats


def test_a_task_that_shows_nothing(random_run, refusal):
    line = refusal("record", str(random_run))
    assert "task='dummy_vector' neither renders images nor observes any" in line


@pytest.mark.parametrize("package", ["av", "PIL.Image"])
def test_a_missing_package_is_named_with_its_extra(package, random_run, refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    line = refusal("record", str(random_run))
    assert f"needs the package {package}" in line and install_command("video") in line


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--formats", "avi"], "formats='avi' is unknown; choose from mp4, gif"),
        (["--formats", "mp44"], "did you mean mp4?"),
        (["--fps", "0"], "fps=0.0 is out of range"),
        (["--episodes", "0", "--dreams", "0"], "leaves nothing to record"),
        (["--max-frames", "0"], "max-frames=0 is too small"),
    ],
)
def test_wrong_options(random_run, refusal, options, part):
    assert part in refusal("record", str(random_run), *options)


def test_dreams_say_so_if_the_agent_has_none(image_run, tmp_path, capsys):
    logdir = tmp_path / "random"
    argv = ["--task", "dummy_image", "--env.dummy.size", "32", "--env.dummy.length", "4", "--run.mode", "serial"]
    argv += ["--agent", "dreamfleet.agent.random:RandomAgent", "--steps", "20", "--replay.capacity", "5000"]
    assert main(["train", "--logdir", str(logdir), *argv]) == 0
    assert YAML(typ="safe").load(logdir / "config.yaml")["task"] == "dummy_image"
    assert main(["record", str(logdir), "--formats", "mp4"]) == 0
    assert (
        "no open-loop predictions: the report of dreamfleet.agent.random:RandomAgent has no videos"
        in capsys.readouterr().out
    )
