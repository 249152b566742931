"""The last reports of a run as files, for whoever shows the run: `reports/NAME/STEP-TxHxW.png` and `STEP.json`.

A video is one PNG with its frames in a grid, row by row, which browsers can show frame by frame; true and predicted
signals are lists `[sequence][time][element]`.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from dreamfleet.base.files import replace_file
from dreamfleet.metrics.values import Summary, encode_png, is_signals, kind_of, to_pixels

FOLDER = "reports"
MAX_PIXELS = 32 << 20  # of all frames of a video; a longer one is cut
_VIDEO = re.compile(r"(\d{12})-(\d+)x(\d+)x(\d+)\.png")
_SIGNALS = re.compile(r"(\d{12})\.json")


class ReportWriter:
    """Keeps the last `keep` videos and signals of each name."""

    def __init__(self, logdir: str | Path, keep: int):
        self._folder = Path(logdir) / FOLDER
        self._keep = keep

    def __call__(self, summaries: Iterable[Summary]) -> None:
        """Writes the videos and signals among the summaries."""
        for step, name, value in summaries:
            if isinstance(value, str):
                continue
            if is_signals(name):
                self._write(name, f"{step:012d}.json", format_signals(value))
            elif kind_of(value) == "video":
                frames, height, width = value.shape[:3]
                frames = max(1, min(frames, MAX_PIXELS // (height * width)))
                file = f"{step:012d}-{frames}x{height}x{width}.png"
                self._write(name, file, encode_png(tile(to_pixels(value[:frames])), level=1))

    def close(self) -> None:
        """Nothing is left to be written."""

    def _write(self, name: str, file: str, content: bytes) -> None:
        folder = self._folder / (re.sub(r"[^\w.-]", "_", name.replace("/", ".")).strip(".") or "_")
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / file, content)
        kept = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        for path in kept[: -self._keep]:
            with contextlib.suppress(OSError):
                path.unlink()


def list_reports(list_names: Callable[[str], list[str]]) -> list[dict]:
    """The kept reports, in order of name and step; `list_names` gives the names in a folder of the run."""
    reports = []
    for name in list_names(FOLDER):
        for file in list_names(f"{FOLDER}/{name}"):
            entry = {"name": name, "file": file}
            if match := _VIDEO.fullmatch(file):
                step, frames, height, width = map(int, match.groups())
                entry |= {"kind": "video", "frames": frames, "height": height, "width": width}
                entry |= {"columns": count_columns(frames, height, width)}
            elif match := _SIGNALS.fullmatch(file):
                step = int(match[1])
                entry |= {"kind": "signals"}
            else:
                continue
            reports.append({**entry, "step": step})
    return reports


def count_columns(frames: int, height: int, width: int) -> int:
    """Frames side by side that make the grid about as wide as high: browsers limit both."""
    return max(1, min(frames, round(math.sqrt(frames * height / max(1, width)))))


def tile(video: np.ndarray) -> np.ndarray:
    """A video (T, H, W, C) as one image of a grid of its frames."""
    frames, height, width, channels = video.shape
    columns = count_columns(frames, height, width)
    rows = -(-frames // columns)
    grid = np.zeros((rows * columns, height, width, channels), np.uint8)
    grid[:frames] = video
    grid = grid.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    return grid.reshape(rows * height, columns * width, channels)


def format_signals(pair: np.ndarray) -> bytes:
    """Truth and prediction (2, B, T, D) as JSON, with the digits that a line on a screen can show."""
    truth, prediction = ([_rounded(sequence) for sequence in array] for array in np.asarray(pair, float))
    return json.dumps({"truth": truth, "prediction": prediction}).encode()


def _rounded(sequence: np.ndarray) -> list:
    return [[float(f"{value:.5g}") if math.isfinite(value) else None for value in row] for row in sequence.tolist()]
