"""Captions of films of open-loop predictions: what each row shows, and where the context ends."""

from collections.abc import Iterator

import numpy as np

from dreamfleet.results.extras import load_extra
from dreamfleet.results.video import enlarge

ROWS = ("truth", "prediction", "error")
LEFT, TOP, TEXT = 92, 28, 15  # pixels: beside the rows, above them, and of the letters
BACKGROUND, INK = (24, 24, 27), (235, 235, 235)
CONTEXT, PREDICTED = (46, 160, 67), (218, 54, 51)  # of the line above the rows


def context_length(frames: int) -> int:
    """How many of the frames a model has seen before it predicts the others."""
    return max(1, frames // 2)


def is_dream(name: str, frames: np.ndarray) -> bool:
    """Whether a video of a report shows truth, prediction and error below each other."""
    return name.startswith("open_loop/") and frames.shape[1] % len(ROWS) == 0


def caption(frames: np.ndarray) -> Iterator[np.ndarray]:
    """Enlarged frames with their captions, as uint8 (H, W, 3) with even sides."""
    draw, image, font = (load_extra(f"PIL.{name}", "video", "record") for name in ("ImageDraw", "Image", "ImageFont"))
    letters, context = font.load_default(TEXT), context_length(len(frames))
    for number, frame in enumerate(frames):
        rows = enlarge(frame)
        height, width = rows.shape[:2]
        picture = image.new("RGB", (LEFT + width, TOP + height), BACKGROUND)
        picture.paste(image.fromarray(rows), (LEFT, TOP))
        pen, is_seen = draw.Draw(picture), number < context
        pen.rectangle((LEFT, TOP - 4, LEFT + width, TOP - 1), fill=CONTEXT if is_seen else PREDICTED)
        phase = f"{number + 1}/{len(frames)} {'context' if is_seen else 'predicted from actions'}"
        pen.text((LEFT, 4), phase, fill=INK, font=letters)
        for index, label in enumerate(ROWS):
            middle = TOP + (index + 0.5) * height / len(ROWS)
            pen.text((LEFT - 8, middle), label, fill=INK, font=letters, anchor="rm")
        yield np.asarray(picture)
