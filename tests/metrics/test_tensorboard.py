"""What ends up in TensorBoard's event files, read back from the file."""

import io
import logging
import struct

import numpy as np
import pytest
from PIL import Image, ImageSequence

from dreamfleet.metrics.tensorboard import TensorBoardWriter

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")


def read_events(logdir):
    """All (step, value) of the event files in a directory."""
    found = []
    for path in sorted(logdir.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack_from("<Q", data)
            event = event_pb2.Event.FromString(data[12 : 12 + length])
            found += [(event.step, value) for value in event.summary.value]
            data = data[16 + length :]
    return found


def decode(encoded):
    """Format and frames of a picture."""
    with Image.open(io.BytesIO(encoded)) as picture:
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(picture)]
        return picture.format, np.stack(frames)


def test_every_kind_of_value(tmp_path):
    writer = TensorBoardWriter(tmp_path, fps=15)
    image = np.random.default_rng(0).integers(0, 256, (6, 7, 3), np.uint8)
    writer(
        [
            (3, "train/loss", np.asarray(0.5)),
            (3, "vector", np.array([1.0, 2.0, np.nan, 3.0])),
            (4, "grey", image[..., 0]),
            (4, "image", image),
            (4, "float", image.astype(np.float32) / 255),
            (5, "video", np.stack([image, image[::-1]])),
            (5, "note", "some text"),
        ]
    )
    values = {value.tag: (step, value) for step, value in read_events(tmp_path)}  # flushed without a close
    assert values["train/loss"][0] == 3 and values["train/loss"][1].simple_value == 0.5
    assert values["vector"][1].histo.num == 3 and values["vector"][1].histo.max == 3
    assert values["grey"][1].image.colorspace == 1
    assert (values["image"][1].image.height, values["image"][1].image.width) == (6, 7)
    for tag in ("image", "float"):
        kind, frames = decode(values[tag][1].image.encoded_image_string)
        assert kind == "PNG" and (frames[0] == image).all()
    kind, frames = decode(values["video"][1].image.encoded_image_string)
    assert kind == "GIF" and frames.shape == (2, 6, 7, 3)
    assert values["note/text_summary"][1].tensor.string_val[0] == b"some text"
    writer.close()
    writer.close()


def test_what_cannot_be_shown_is_left_out_and_said_once(tmp_path, caplog):
    writer = TensorBoardWriter(tmp_path, fps=15)
    odd = {
        "channels": np.zeros((4, 4, 7)),
        "empty": np.zeros((0, 4, 4, 3)),
        "nothing": np.zeros(0),
        "nan": np.full(3, np.nan),
        "complex": np.zeros((4, 4), np.complex64),
        "object": np.array(None),
    }
    with caplog.at_level(logging.WARNING, "dreamfleet.metrics"):
        for step in (1, 2):
            writer([(step, name, value) for name, value in odd.items()] + [(step, "fine", np.asarray(1))])
    assert [(step, value.tag) for step, value in read_events(tmp_path)] == [(1, "fine"), (2, "fine")]
    assert len(caplog.records) == len(odd)
    assert "metric channels is left out: TensorBoard cannot show float64 of shape (4, 4, 7)" in caplog.text
    writer.close()


def test_a_restart_within_a_second_overwrites_nothing(tmp_path):
    for step in (1, 2, 3):
        writer = TensorBoardWriter(tmp_path, fps=15)
        writer([(step, "a", np.asarray(1))])
        writer.close()
    assert [step for step, _ in read_events(tmp_path)] == [1, 2, 3]
