"""Images as the networks take them: which sizes they can, and how others are brought to such a size."""

import functools

import numpy as np

FACTOR = 16  # what the encoder shrinks an image by
SIDES = tuple(range(3 * FACTOR, 16 * FACTOR + 1, FACTOR))  # 3 to 16 pixels are left behind the encoder
CHANNELS = (1, 3, 4)


def is_usable(shape: tuple[int, ...]) -> bool:
    """Whether an image (H, W, C) can go through the networks as it is."""
    return shape[0] in SIDES and shape[1] in SIDES


def is_channel_first(shape: tuple[int, ...]) -> bool:
    """Whether the shape of an image is (C, H, W): channels or stacked frames, in front of longer sides."""
    first, *sides = shape
    if shape[-1] in CHANNELS or first >= min(sides):
        return False
    return first in CHANNELS or sides[0] == sides[1]


def resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resizes uint8 images (..., H, W, C); a pixel of the result is the mean of the area that it covers."""
    rows, columns = image.shape[-3:-1]
    if (rows, columns) == (height, width):
        return image
    pixels, shares = _areas(rows, height)
    tall = sum(share[:, None, None] * image[..., pixel, :, :] for pixel, share in zip(pixels, shares, strict=True))
    pixels, shares = _areas(columns, width)
    mean = sum(share[:, None] * tall[..., pixel, :] for pixel, share in zip(pixels, shares, strict=True))
    return np.rint(mean).astype(np.uint8)


@functools.cache
def _areas(old: int, new: int) -> tuple[np.ndarray, np.ndarray]:
    """The old pixels [N, new] that each new one covers, N at most, and the share of it that each of them has."""
    edges = np.arange(new + 1) * (old / new)
    pixels = np.floor(edges[:-1]) + np.arange(int(np.ceil(old / new)) + 1)[:, None]
    overlap = np.minimum(edges[1:], pixels + 1) - np.maximum(edges[:-1], pixels)
    shares = np.maximum(overlap, 0) * (new / old)
    return np.minimum(pixels, old - 1).astype(np.intp), shares.astype(np.float32)
