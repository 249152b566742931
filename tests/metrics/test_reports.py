"""The last reports as files: what is written, kept and found again."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from dreamfleet.metrics import make_writers
from dreamfleet.metrics.reports import MAX_PIXELS, ReportWriter, count_columns, list_reports, tile
from dreamfleet.metrics.values import encode_png, without_signals


def list_in(logdir):
    def list_names(name: str) -> list[str]:
        folder = logdir / name
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    return list_names


def make_video(frames: int, height: int = 4, width: int = 6, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(frames).integers(0, 256, (frames, height, width, channels), np.uint8)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 2), (5, 7, 3), (5, 7, 4)])
def test_png_is_read_back_by_others(shape):
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    with Image.open(io.BytesIO(encode_png(image))) as picture:
        np.testing.assert_array_equal(np.asarray(picture).reshape(shape), image)


@pytest.mark.parametrize("frames", [1, 2, 7, 30])
def test_every_frame_is_in_its_place_of_the_grid(frames):
    video = make_video(frames)
    grid, columns = tile(video), count_columns(frames, 4, 6)
    for i, frame in enumerate(video):
        row, column = divmod(i, columns)
        np.testing.assert_array_equal(grid[4 * row : 4 * row + 4, 6 * column : 6 * column + 6], frame)


def test_the_last_of_each_name_are_kept(tmp_path):
    writer = ReportWriter(tmp_path, keep=2)
    for step in (5, 10, 15):
        writer([(step, "report/open_loop/image", make_video(3)), (step, "train/loss", np.array(1.0))])
    writer([(15, "episode/video", make_video(8)), (15, "text", "hello")])
    episode, first, second = list_reports(list_in(tmp_path))
    assert (first["step"], second["step"], second["frames"]) == (10, 15, 3)
    assert (episode["name"], episode["kind"], episode["columns"]) == ("episode.video", "video", 2)
    folder = tmp_path / "reports" / "report.open_loop.image"
    assert sorted(path.name for path in folder.iterdir()) == [first["file"], second["file"]]


def test_signals(tmp_path):
    signals = np.array([[[[1.0, np.nan]]], [[[0.123456789, -2.0]]]])
    ReportWriter(tmp_path, keep=1)([(7, "report/open_loop_signals/vector", signals)])
    (report,) = list_reports(list_in(tmp_path))
    data = json.loads((tmp_path / "reports" / report["name"] / report["file"]).read_text())
    assert data == {"truth": [[[1.0, None]]], "prediction": [[[0.12346, -2.0]]]}
    summaries = [(7, "report/open_loop_signals/vector", signals), (7, "a", np.array(1.0))]
    assert [name for _, name, _ in without_signals(summaries)] == ["a"]


def test_a_video_that_is_too_long_is_cut(tmp_path):
    side = 1 << 12
    video = np.broadcast_to(np.uint8(0), (4, side, side, 1))
    ReportWriter(tmp_path, keep=1)([(0, "episode/video", video)])
    (report,) = list_reports(list_in(tmp_path))
    assert report["frames"] == MAX_PIXELS // side**2 == 2


def test_names_cannot_lead_elsewhere(tmp_path):
    ReportWriter(tmp_path / "run", keep=1)([(0, "../../episode/video", make_video(2)), (0, "/a b", make_video(2))])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    names = {report["name"] for report in list_reports(list_in(tmp_path / "run"))}
    assert names == {"episode.video", "a_b"}


def test_files_that_are_something_else_are_not_listed(tmp_path):
    folder = tmp_path / "reports" / "episode.video"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("")
    (folder / ".000000000001-1x1x1.png.77").write_text("")
    assert list_reports(list_in(tmp_path)) == []


@pytest.mark.parametrize("reports", [0, 3])
def test_the_option_of_the_logger(tmp_path, reports):
    writers = make_writers(["jsonl"], tmp_path, 15, reports=reports)
    for writer in writers:
        writer([(1, "episode/video", make_video(2))])
        writer.close()
    assert (tmp_path / "reports").exists() == bool(reports)
