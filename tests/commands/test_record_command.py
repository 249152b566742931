"""`dreamfleet record`: the files that it writes can be played and show what they should."""

import shutil
import sys

import numpy as np
import pytest
from PIL import Image, ImageSequence
from ruamel.yaml import YAML

from dreamfleet.cli import main
from dreamfleet.results.video import SHORT_SIDE, VideoWriter, enlarge


def read_mp4(path) -> np.ndarray:
    import av

    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def read_gif(path) -> np.ndarray:
    with Image.open(path) as image:
        return np.stack([np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)])


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
    assert dream.shape == (6, 3 * 32 * factor, 2 * 32 * factor, 3), "three rows, two sequences side by side"
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
    assert f"needs the package {package}" in line and "pip install 'dreamfleet[video]'" in line


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--formats", "avi"], "formats='avi' is unknown; choose from mp4, gif"),
        (["--fps", "0"], "fps=0.0 is out of range"),
        (["--episodes", "0", "--dreams", "0"], "leaves nothing to record"),
        (["--max-frames", "0"], "max-frames=0 is too small"),
    ],
)
def test_wrong_options(random_run, refusal, options, part):
    assert part in refusal("record", str(random_run), *options)


def test_a_picture_survives_in_both_formats(tmp_path):
    """Odd sides, a color, and a square that moves by one column a frame."""
    frames = np.full((10, 501, 701, 3), (200, 30, 60), np.uint8)
    for index, frame in enumerate(frames):
        frame[100:200, 50 * index : 50 * index + 100] = (20, 220, 90)
    with VideoWriter(tmp_path / "video", ["mp4", "gif"], 10) as video:
        for frame in frames:
            video.add(frame)
    played = read_mp4(tmp_path / "video.mp4")
    assert played.shape == (10, 502, 702, 3)
    assert np.abs(played[:, :501, :701].astype(int) - frames).mean() < 4
    shrunk = read_gif(tmp_path / "video.gif")
    assert len(shrunk) == 10 and shrunk.shape[2] == 640
    row = int(150 * 640 / 701)
    for index, frame in enumerate(shrunk):
        column = int((50 * index + 50) * 640 / 701)
        assert np.abs(frame[row, column].astype(int) - (20, 220, 90)).max() < 8
        assert np.abs(frame[-5, 5].astype(int) - (200, 30, 60)).max() < 8


def test_quick_videos_become_gifs_that_play_at_the_same_speed(tmp_path):
    with VideoWriter(tmp_path / "video", ["gif"], 50) as video:
        for index in range(20):
            video.add(np.full((64, 64, 3), 10 * index, np.uint8))
    with Image.open(tmp_path / "video.gif") as image:
        assert (image.n_frames, image.info["duration"]) == (10, 40)  # pyright: ignore[reportAttributeAccessIssue]


def test_small_pictures_are_enlarged_without_blur():
    frame = np.random.default_rng(0).integers(0, 256, (64, 96, 3)).astype(np.uint8)
    large = enlarge(frame)
    assert large.shape == (448, 672, 3) and (large[3::7, 3::7] == frame).all()
    assert enlarge(large[:, :, :]).shape == large.shape


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
