"""Writes pictures as MP4 (H.264, which every browser plays) and as GIF, one at a time as they come."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dreamfleet.results.extras import load_extra

FORMATS = ("mp4", "gif")
SHORT_SIDE = 480  # smaller pictures are enlarged by a whole number to at most this
GIF_SIDE = 640  # larger ones are made smaller in a GIF, which hardly compresses
GIF_RATE = 25  # frames a second that a GIF has at most: viewers slow down what is quicker


class Writer(Protocol):
    """A video that is being written."""

    def add(self, frame: np.ndarray) -> None: ...

    def close(self) -> None: ...


class VideoWriter:
    """One video in several formats, as files `path.mp4` and so on; frames are uint8 (H, W, 3) of one size."""

    def __init__(self, path: Path, formats: Sequence[str], fps: float):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.files = [path.with_name(f"{path.name}.{suffix}") for suffix in formats]
        kinds = {"mp4": Mp4Writer, "gif": GifWriter}
        self._writers: list[Writer] = [kinds[file.suffix[1:]](file, fps) for file in self.files]
        self.frames = 0

    def add(self, frame: np.ndarray) -> None:
        frame = enlarge(frame)
        self.frames += 1
        for writer in self._writers:
            writer.add(frame)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    def __enter__(self) -> "VideoWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Mp4Writer:
    """Encodes with PyAV, which brings the libraries of FFmpeg."""

    def __init__(self, path: Path, fps: float):
        self._av = load_extra("av", "video", "record")
        # The index in front lets a browser begin to play before it has all of the file.
        self._container = self._av.open(str(path), "w", options={"movflags": "faststart"})
        self._stream: Any = self._container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        self._stream.pix_fmt = "yuv420p"
        self._stream.options = {"crf": "18", "preset": "fast"}
        self._is_sized = False

    def add(self, frame: np.ndarray) -> None:
        frame = _even(frame)
        if not self._is_sized:
            self._stream.height, self._stream.width = frame.shape[:2]
            self._is_sized = True
        picture = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
        self._container.mux(self._stream.encode(picture))

    def close(self) -> None:
        if self._is_sized:
            self._container.mux(self._stream.encode())
        self._container.close()


class GifWriter:
    """Keeps small pictures of at most 256 colours and writes them when it is closed."""

    def __init__(self, path: Path, fps: float):
        self._image = load_extra("PIL.Image", "video", "record")
        self._path = path
        self._every = max(1, int(np.ceil(fps / GIF_RATE)))
        # Delays are in hundredths of a second.
        self._delay_ms = max(20, round(100 * self._every / fps) * 10)
        self._count = 0
        self._frames: list[Any] = []

    def add(self, frame: np.ndarray) -> None:
        if self._count % self._every == 0:
            picture = self._image.fromarray(frame)
            picture.thumbnail((GIF_SIDE, GIF_SIDE))
            self._frames.append(picture.quantize(dither=self._image.Dither.NONE))
        self._count += 1

    def close(self) -> None:
        if self._frames:
            first, *rest = self._frames
            first.save(self._path, save_all=True, append_images=rest, duration=self._delay_ms, loop=0)


def enlarge(frame: np.ndarray) -> np.ndarray:
    """Small pictures with each pixel as a square of several; others as they are."""
    factor = max(1, SHORT_SIDE // min(frame.shape[:2]))
    return frame.repeat(factor, 0).repeat(factor, 1) if factor > 1 else frame


def _even(frame: np.ndarray) -> np.ndarray:
    """With even sides, which the encoder needs: the last row or column twice if there is an odd number."""
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), "edge") if height % 2 or width % 2 else frame
