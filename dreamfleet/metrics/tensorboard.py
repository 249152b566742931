"""Writes TensorBoard event files through tensorboardX, without TensorFlow; one of the logger's outputs."""

import logging
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dreamfleet.metrics.values import Summary, Value, describe, encode_gif, encode_png, kind_of, without_signals

log = logging.getLogger("dreamfleet.metrics")

_HISTOGRAM_BINS = 30


class TensorBoardWriter:
    """Scalars, histograms (vectors), images, videos and text; what TensorBoard cannot show is left out, said once."""

    def __init__(self, logdir: str | Path, fps: float):
        self._logdir = Path(logdir)
        self._fps = fps
        self._events = None
        self._left_out: set[str] = set()

    def __call__(self, summaries: Iterable[Summary]) -> None:
        """Writes the summaries and flushes them to disk."""
        # The names in generated modules exist only at run time.
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

        events = self._open()
        for step, name, value in without_signals(summaries):
            summary = self._summarize(name, value)
            if summary is not None:
                events.write_event(Event(wall_time=time.time(), step=step, summary=summary))
            elif name not in self._left_out:
                self._left_out.add(name)
                log.warning("metric %s is left out: TensorBoard cannot show %s", name, describe(value))
        events.flush()

    def close(self) -> None:
        """Closes the event file; a later call opens the next one."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _open(self):
        # Imported at the first metrics: half a second that the start of the run does not wait for.
        if self._events is None:
            from tensorboardX.event_file_writer import EventsWriter

            self._logdir.mkdir(parents=True, exist_ok=True)
            # File names count in seconds, and an existing file is overwritten: the suffix keeps restarts apart.
            self._events = EventsWriter(str(self._logdir / "events"), filename_suffix=f".{time.time_ns()}")
        return self._events

    def _summarize(self, name: str, value: Value):
        from tensorboardX import summary

        kind = kind_of(value)
        if isinstance(value, str):
            return summary.text(name, value)
        if kind == "scalar":
            return summary.scalar(name, value)
        if kind == "vector":
            finite = value[np.isfinite(value)]
            return summary.histogram(name, finite, bins=_HISTOGRAM_BINS) if finite.size else None
        if kind == "image":
            return _show(name, value, encode_png(value))
        if kind == "video":
            return _show(name, value[0], encode_gif(value, self._fps))
        return None


def _show(name: str, frame: np.ndarray, encoded: bytes):
    # TensorBoard looks at the bytes for what they are: PNG, or GIF, which its image page plays.
    from tensorboardX.proto.summary_pb2 import Summary as Proto  # pyright: ignore[reportAttributeAccessIssue]

    channels = frame.shape[2] if frame.ndim == 3 else 1
    height, width = frame.shape[:2]
    image = Proto.Image(height=height, width=width, colorspace=channels, encoded_image_string=encoded)
    return Proto(value=[Proto.Value(tag=name, image=image)])
