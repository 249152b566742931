"""Reading back what a run has written, while it writes and after it was killed."""

import numpy as np

from dreamfleet.metrics.reading import read_series


def test_every_number_by_its_key(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "time": 5, "a": 2, "text": "x"}\n{"step": 3, "time": 6, "a": null, "b": 4.5}\n')
    series = read_series(path)
    assert set(series) == {"a", "b"}
    np.testing.assert_array_equal(series["a"].step, [1, 3])
    np.testing.assert_array_equal(series["a"].value, [2, np.nan])
    np.testing.assert_array_equal(series["b"].value, [4.5])


def test_there_is_no_file_yet(tmp_path):
    assert read_series(tmp_path / "metrics.jsonl") == {}


def test_lines_that_are_not_whole_are_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "a": 2}\n{"step": 2, "a\n{"step": 3, "a": \xff\n{"step": 4, "a": 5}\n{"step": 6, "a')
    np.testing.assert_array_equal(read_series(path)["a"].step, [1, 4])
