"""Reading back what a run has written, while it writes and after it was killed."""

import numpy as np
import pytest

from dreamfleet.metrics.reading import Table, read_series


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


def append(path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_only_what_is_new_is_read_and_a_torn_line_waits(tmp_path):
    path = tmp_path / "metrics.jsonl"
    table = Table(path)
    assert not table.refresh() and table.rows == 0
    append(path, '{"step": 1, "time": 2, "a": 3}\n{"step": 4, "time": 5, "a": ')
    assert table.refresh() and table.rows == 1
    assert not table.refresh()
    append(path, '6, "b": 7}\n')
    assert table.refresh()
    np.testing.assert_array_equal(table.points("a").value, [3, 6])
    np.testing.assert_array_equal(table.points("a").time, [2, 5])
    np.testing.assert_array_equal(table.points("b").row, [1])
    np.testing.assert_array_equal(table.points("a", since=1).step, [4])
    assert table.generation == 0


@pytest.mark.parametrize("how", ["replaced", "cut", "written again"])
def test_another_file_in_its_place_is_read_from_its_start(tmp_path, how):
    path = tmp_path / "metrics.jsonl"
    line = '{"step": %d, "time": 0, "a": %d}\n'
    path.write_text("".join(line % (i, i) for i in range(100)))
    table = Table(path)
    table.refresh()
    if how == "replaced":
        path.rename(tmp_path / "old")
    count = 3 if how == "cut" else 200
    path.write_text("".join(line % (i, i + 1000) for i in range(count)))
    assert table.refresh() and table.generation == 1
    np.testing.assert_array_equal(table.points("a").value, np.arange(count) + 1000)


def test_a_line_that_the_logger_cuts_off_when_it_starts_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "time": 0, "a": 1}\n{"step": 2, "ti')
    table = Table(path)
    table.refresh()
    path.write_text('{"step": 1, "time": 0, "a": 1}\n')  # the same file, without the torn line
    append(path, '{"step": 3, "time": 0, "a": 3}\n')
    table.refresh()
    np.testing.assert_array_equal(table.points("a").step, [1, 3])
    assert table.generation == 0


def test_a_large_file_in_pieces(tmp_path):
    path = tmp_path / "metrics.jsonl"
    long = "x" * 500
    path.write_text("".join(f'{{"step": {i}, "time": 0, "a": {i}, "text": "{long}"}}\n' for i in range(20)))
    table = Table(path, chunk_bytes=50)
    while not table.is_complete:
        table.refresh(budget_s=0.0)
    np.testing.assert_array_equal(table.points("a").value, np.arange(20))


@pytest.mark.parametrize("end", ["", '{"step": 9, "ti'])
def test_a_file_that_was_read_to_its_end_is_complete_however_long_that_took(tmp_path, end):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "time": 0, "a": 1}\n' + end)
    table = Table(path)
    table.refresh(budget_s=0.0)
    assert table.is_complete and table.rows == 1
    append(path, '\n{"step": 10, "time": 0, "a": 2}\n')
    table.refresh(budget_s=0.0)
    assert table.is_complete
    np.testing.assert_array_equal(table.points("a").step, [1, 10])


def test_a_writer_that_is_quicker_than_its_reader_does_not_keep_it(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    line = '{"step": 1, "time": 0, "a": 1}\n'
    path.write_text(line)
    table = Table(path)
    add = table._add

    def add_while_another_line_is_written(lines):
        assert table.rows < 3
        append(path, line)
        add(lines)

    monkeypatch.setattr(table, "_add", add_while_another_line_is_written)
    for rows in (1, 2, 3):
        assert table.refresh() and table.is_complete and table.rows == rows


def test_what_is_no_number_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    huge = "1" + "0" * 400
    lines = [
        '{"step": 1, "a": "5", "b": true}',
        f'{{"step": 2, "a": 5, "b": {huge}}}',
        '{"step": 3, "a": [1], "b": null}',
        f'{{"step": 4, "time": {huge}, "b": 2}}',
    ]
    bad = ["[1, 2]", "7", '{"a": 1}', '{"step": null, "a": 1}', '{"step": 1e400, "a": 1}', "[" * 100_000]
    path.write_text("\n".join([*lines, *bad]) + "\n")
    series = read_series(path)
    np.testing.assert_array_equal(series["a"].value, [5])
    np.testing.assert_array_equal(series["b"].value, [1, np.nan, np.nan, 2])


def test_torn_lines_that_are_json_only_together_are_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1.5}\n{"step": 2, "a": 2.5, "b": [1\n2]}\n{"step": 3, "a": 3.5}\n')
    np.testing.assert_array_equal(read_series(path)["a"].value, [1.5, 3.5])


def test_large_steps_stay_exact_and_columns_may_change_their_type(tmp_path):
    path = tmp_path / "metrics.jsonl"
    big = 2**53 + 1
    rows = [f'{{"step": {big}, "time": 1.5, "a": {value}}}\n' for value in ("1", "2.5", "true", "null", '"3"', "4")]
    path.write_text("".join(rows))
    a = read_series(path)["a"]
    np.testing.assert_array_equal(a.value, [1, 2.5, 1, np.nan, 4])
    assert set(a.step.tolist()) == {big}


def test_the_names_of_a_long_file_are_known_at_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {i}, "time": 0.5, "a": {i}.5}}\n' for i in range(20_000)))
    table = Table(path)
    table.refresh(budget_s=0)
    assert table.names() == ["a"] and table.rows < 3000 and not table.is_complete
    table.refresh()
    np.testing.assert_array_equal(table.points("a").value, np.arange(20_000) + 0.5)
