"""Images as the networks take them: which sizes they can, and how others are brought to such a size."""

import functools

import numpy as np

from dreamfleet.base.dimensions import IMAGE_SIDES

CHANNELS = (1, 3, 4)


def is_usable(shape: tuple[int, ...]) -> bool:
    """Whether an image (H, W, C) can go through the networks as it is."""
    return shape[0] in IMAGE_SIDES and shape[1] in IMAGE_SIDES


def is_channel_first(shape: tuple[int, ...]) -> bool:
    """Whether the shape of an image is (C, H, W): channels or stacked frames, in front of longer sides."""
    first, *sides = shape
    if shape[-1] in CHANNELS or first >= min(sides):
        return False
    return first in CHANNELS or sides[0] == sides[1]


def resize(image: np.ndarray, height: int, width: int, filter: str = "area") -> np.ndarray:
    """Resizes uint8 images (..., H, W, C).

    With `area`, a pixel of the result is the mean of the area that it covers, as in OpenCV. With `bilinear`, pixels
    count the less the farther away they are, up to the centre of the next pixel of the result, as in Pillow.
    """
    *lead, rows, columns, channels = image.shape
    if (rows, columns) == (height, width):
        return image
    # Channels beside each other in the last dimension: NumPy is quick only where that is long.
    flat = image.reshape(*lead, rows, columns * channels)
    find_shares = _areas if filter == "area" else _triangles
    places, shares = find_shares(rows, height, 1)
    tall = _blend(flat, places, shares[:, :, None], -2)
    wide = _blend(tall, *find_shares(columns, width, channels), -1)
    return np.rint(wide).astype(np.uint8).reshape(*lead, height, width, channels)


def _blend(image: np.ndarray, places: np.ndarray, shares: np.ndarray, axis: int) -> np.ndarray:
    total = shares[0] * image.take(places[0], axis)
    for place, share in zip(places[1:], shares[1:], strict=True):
        total += share * image.take(place, axis)
    return total


@functools.cache
def _areas(old: int, new: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """The N old places in a line [N, new * channels] that each new one covers, and the share that each has of it."""
    edges = np.arange(new + 1) * (old / new)
    pixels = np.floor(edges[:-1]) + np.arange(int(np.ceil(old / new)) + 1)[:, None]
    overlap = np.minimum(edges[1:], pixels + 1) - np.maximum(edges[:-1], pixels)
    return _for_channels(pixels, np.maximum(overlap, 0), old, channels)


@functools.cache
def _triangles(old: int, new: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """The same with shares that fall from the centre of each new place to 0 at that of its neighbours."""
    reach = max(1.0, old / new)
    centres = (np.arange(new) + 0.5) * (old / new)
    pixels = np.floor(centres - reach + 0.5) + np.arange(int(np.ceil(2 * reach)) + 1)[:, None]
    shares = np.maximum(1 - np.abs(pixels + 0.5 - centres) / reach, 0)
    return _for_channels(pixels, np.where((pixels >= 0) & (pixels < old), shares, 0), old, channels)


def _for_channels(pixels: np.ndarray, shares: np.ndarray, old: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Places and shares [N, new] for channels that lie beside each other; the shares of a new place add up to 1."""
    pixels = np.clip(pixels, 0, old - 1).astype(np.intp)
    places = pixels[:, :, None] * channels + np.arange(channels)
    shares = shares / shares.sum(0)
    return places.reshape(len(pixels), -1), np.repeat(shares, channels, 1).astype(np.float32)
