"""Kinds of values, and pictures as bytes, decoded again by an imaging library."""

import io

import numpy as np
import pytest
from PIL import Image

from dreamfleet.metrics.values import encode_gif, encode_png, kind_of, to_pixels


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("words", "text"),
        (np.asarray(1.5), "scalar"),
        (np.asarray(True), "scalar"),
        (np.zeros(3), "vector"),
        (np.zeros((4, 5), np.uint8), "image"),
        (np.zeros((4, 5, 3)), "image"),
        (np.zeros((2, 4, 5, 1)), "video"),
        (np.zeros((4, 5, 7)), None),
        (np.zeros((0, 4, 4, 3)), None),
        (np.zeros((2, 2, 4, 5, 3)), None),
        (np.zeros((4, 4), np.complex64), None),
        (np.array(None), None),
    ],
)
def test_kinds(value, kind):
    assert kind_of(value) == kind


def test_pixels():
    assert to_pixels(np.array([0.0, 0.5, 1.0, 2.0, -1.0, np.nan])).tolist() == [0, 127, 255, 255, 0, 0]
    assert to_pixels(np.array([True, False])).tolist() == [255, 0]
    assert to_pixels(np.array([-5, 7, 300])).tolist() == [0, 7, 255]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_images_are_exact(channels):
    image = np.random.default_rng(0).integers(0, 256, (6, 7, channels), np.uint8)
    with Image.open(io.BytesIO(encode_png(image))) as decoded:
        assert decoded.format == "PNG"
        assert (np.asarray(decoded).reshape(image.shape) == image).all()


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_videos_are_animated(channels):
    video = np.stack([np.full((6, 7, channels), 40 * t, np.uint8) for t in range(5)])
    video[..., 3:] = 255
    with Image.open(io.BytesIO(encode_gif(video, fps=10))) as decoded:
        assert (decoded.format, decoded.n_frames, decoded.info["loop"]) == ("GIF", 5, 0)  # 0: for ever
        for index in range(5):
            decoded.seek(index)
            assert decoded.info["duration"] == 100
            assert abs(int(np.asarray(decoded.convert("RGB"))[3, 3, 0]) - 40 * index) <= 2
