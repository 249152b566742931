"""What kind of value a metric has, and pictures as bytes; every writer that shows more than numbers uses it."""

import io
import struct
import zlib
from collections.abc import Iterable

import numpy as np

Value = np.ndarray | str
Summary = tuple[int, str, Value]  # step, name, value
SIGNALS = "/open_loop_signals/"


def kind_of(value: Value) -> str | None:
    """`text`, `scalar`, `vector`, `image` (H, W[, C]) or `video` (T, H, W, C); None for what nobody can show."""
    if isinstance(value, str):
        return "text"
    if value.dtype.kind not in "biuf" or value.ndim > 4:
        return None
    if value.ndim < 2:
        return ("scalar", "vector")[value.ndim]
    has_channels = value.ndim == 2 or 1 <= value.shape[-1] <= 4
    if not has_channels or not value.size:
        return None
    return "video" if value.ndim == 4 else "image"


def can_show(value: object) -> bool:
    """Whether a metric that a user or a peer gave is text, a number or an array of numbers of up to four dimensions."""
    if isinstance(value, str):
        return True
    try:
        array = np.asarray(value)
    except ValueError:
        return False
    # V: numbers such as bfloat16, which NumPy does not count among its own.
    return (array.dtype.kind in "biuf" and array.ndim <= 4) or (array.dtype.kind == "V" and not array.ndim)


def is_signals(name: str) -> bool:
    """Whether a metric is an array (2, B, T, D) of true and predicted signals, which only files and pages show."""
    return SIGNALS in f"/{name}"


def without_signals(summaries: Iterable[Summary]) -> list[Summary]:
    """What trackers can show: they would take signals for videos."""
    return [summary for summary in summaries if not is_signals(summary[1])]


def describe(value: Value) -> str:
    """A value in the words of a message."""
    return "text" if isinstance(value, str) else f"{value.dtype.name} of shape {value.shape}"


def to_pixels(array: np.ndarray) -> np.ndarray:
    """Bytes from bytes, from floats in 0..1, or from booleans."""
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind in "bf":
        array = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=1.0, neginf=0.0) * 255
    return np.clip(array, 0, 255).astype(np.uint8)


def encode_png(image: np.ndarray, level: int = 6) -> bytes:
    """An image (H, W[, C]) as PNG: zlib is all that takes, so that no run needs a package for it."""
    pixels = to_pixels(image)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    height, width, channels = pixels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # a 0 in front of each row: not filtered
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), level)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in ((b"IHDR", header), (b"IDAT", body), (b"IEND", b""))
    )


def encode_gif(video: np.ndarray, fps: float) -> bytes:
    """A video as an endless animated GIF, the one format that every viewer of metrics plays."""
    from PIL import Image

    # A palette of its own for each frame; the dithering of a still would flicker in a video.
    frames = [_picture(frame).convert("RGB").quantize(dither=Image.Dither.NONE) for frame in to_pixels(video)]
    duration_ms = max(20, round(1000 / fps))  # viewers slow down what is faster
    return _save(frames, "GIF", save_all=True, append_images=frames[1:], duration=duration_ms, loop=0)


def _picture(pixels: np.ndarray):
    from PIL import Image  # not needed by runs that only write numbers

    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[-1] == 1 else pixels)


def _save(frames: list, kind: str, **options) -> bytes:
    with io.BytesIO() as file:
        frames[0].save(file, kind, **options)
        return file.getvalue()
