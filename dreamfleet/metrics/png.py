"""Images and videos as PNG bytes, so that TensorBoard gets both without an imaging library.

A video is an animated PNG: browsers play it where they show a PNG, in full colour.
"""

import struct
import zlib

import numpy as np

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> grey, grey + alpha, RGB, RGBA


def is_drawable(array: np.ndarray) -> bool:
    """Whether an array of shape (H, W), (H, W, C) or (T, H, W, C) can be a picture."""
    channels = array.shape[-1] if array.ndim >= 3 else 1
    return array.ndim in (2, 3, 4) and array.size > 0 and channels in _COLOR_TYPES and array.dtype.kind in "biuf"


def to_pixels(array: np.ndarray) -> np.ndarray:
    """Bytes from bytes, from floats in 0..1, or from booleans."""
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind in "bf":
        array = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=1.0, neginf=0.0) * 255
    return np.clip(array, 0, 255).astype(np.uint8)


def encode_png(frames: np.ndarray, fps: float) -> bytes:
    """One PNG from uint8 frames of shape (T, H, W, C): still for one frame, animated for more."""
    count, height, width, channels = frames.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    chunks = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", header)]
    if count == 1:
        chunks.append(_chunk(b"IDAT", _compress(frames[0])))
    else:
        chunks.append(_chunk(b"acTL", struct.pack(">II", count, 0)))
        chunks.extend(_animation(frames, fps))
    chunks.append(_chunk(b"IEND", b""))
    return b"".join(chunks)


def _animation(frames: np.ndarray, fps: float) -> list[bytes]:
    height, width = frames.shape[1:3]
    delay = (1, min(max(1, round(fps)), 0xFFFF))  # seconds as a fraction
    chunks, sequence = [], 0
    for index, frame in enumerate(frames):
        control = struct.pack(">IIIIIHHBB", sequence, width, height, 0, 0, *delay, 0, 0)
        chunks.append(_chunk(b"fcTL", control))
        sequence += 1
        # The first frame is the image that viewers without animation show, and has no sequence number.
        if index == 0:
            chunks.append(_chunk(b"IDAT", _compress(frame)))
        else:
            chunks.append(_chunk(b"fdAT", struct.pack(">I", sequence) + _compress(frame)))
            sequence += 1
    return chunks


def _compress(frame: np.ndarray) -> bytes:
    # Every row starts with its filter, 0: none.
    rows = np.pad(frame.reshape(frame.shape[0], -1), ((0, 0), (1, 0)))
    return zlib.compress(rows.tobytes(), 6)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
