"""The video files show what was put in, at its speed."""

import numpy as np
from PIL import Image

from dreamfleet.results.video import VideoWriter, enlarge
from tests.results.videos import read_gif, read_mp4


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
