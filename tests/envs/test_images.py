"""Resizing by area, and which shapes are images that the networks can take."""

import numpy as np
import pytest
from PIL import Image

from dreamfleet.envs.images import is_channel_first, is_usable, resize


def resize_slowly(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Every pixel made of height x width small ones, and these averaged again: the area mean by its definition."""
    rows, columns, channels = image.shape
    fine = image.repeat(height, 0).repeat(width, 1).astype(float)
    return fine.reshape(height, rows, width, columns, channels).mean((1, 3))


@pytest.mark.parametrize("shape", [(21, 16, 3), (7, 7, 1), (8, 8, 4), (5, 30, 2)])
@pytest.mark.parametrize("size", [(8, 8), (9, 5), (24, 32)])
def test_a_pixel_is_the_mean_of_the_area_that_it_covers(shape, size):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    small = resize(image, *size)
    assert small.dtype == np.uint8 and small.shape == (*size, shape[2])
    assert np.abs(small - resize_slowly(image, *size)).max() <= 0.51


@pytest.mark.parametrize("shape", [(210, 160, 3), (512, 512, 3), (40, 70, 1)])
@pytest.mark.parametrize("size", [(96, 96), (64, 80)])
def test_bilinear_is_what_pillow_does(shape, size):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    theirs = np.asarray(Image.fromarray(image.squeeze()).resize(size[::-1], Image.Resampling.BILINEAR))
    difference = resize(image, *size, "bilinear").astype(int) - theirs.reshape(*size, shape[2])
    assert np.abs(difference).max() <= 1, "Pillow rounds twice"


def test_several_images_are_resized_at_once():
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 20, 10, 3)).astype(np.uint8)
    small = resize(images, 6, 7)
    np.testing.assert_array_equal(small[1, 2], resize(images[1, 2], 6, 7))


@pytest.mark.parametrize("value", [0, 1, 200, 255])
def test_even_areas_keep_their_value(value):
    assert (resize(np.full((210, 160, 3), value, np.uint8), 96, 64) == value).all()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((3, 64, 64), True),
        ((1, 28, 28), True),
        ((4, 84, 84), True),
        ((12, 84, 84), True),
        ((3, 210, 160), True),
        ((64, 64, 3), False),
        ((7, 7, 3), False),
        ((3, 5, 4), False),
        ((10, 20, 30), False),
        ((84, 84, 12), False),
        ((64, 64, 64), False),
    ],
)
def test_channel_first_is_told_by_the_shape(shape, expected):
    assert is_channel_first(shape) == expected


def test_usable_sizes():
    assert is_usable((48, 256, 3)) and is_usable((64, 64, 1))
    assert not any(map(is_usable, [(32, 64, 3), (64, 272, 3), (84, 84, 3), (64, 70, 3)]))
