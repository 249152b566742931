"""Counts that outlive their process."""

from pathlib import Path

import pytest

from dreamfleet.roles.replay.counts import Counts, CountsFile

ACTOR = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "replay" / "counts"


def write(path: Path, *entries: Counts) -> None:
    file = CountsFile(path)
    for entry in entries:
        file.write(entry)
    file.close()


def read(path: Path) -> Counts:
    file = CountsFile(path)
    try:
        return file.read()
    finally:
        file.close()


def test_a_new_file_counts_from_zero(path):
    assert read(path) == Counts(0, 0, "", 0)


def test_the_newest_counts_survive_reopening(path):
    entries = [Counts(10 * i, 3 * i, ACTOR, i) for i in range(1, 6)]
    for number in range(1, 6):
        write(path, *entries[:number])
        assert read(path) == entries[number - 1]
        path.unlink()


def test_writing_goes_on_after_reopening_with_or_without_a_read(path):
    for number in range(1, 7):
        write(path, Counts(number, 100 - number, ACTOR, number))
        assert read(path) == Counts(number, 100 - number, ACTOR, number)


def test_large_numbers_fit(path):
    counts = Counts(2**60, 2**61, ACTOR, 2**62)
    write(path, counts)
    assert read(path) == counts


@pytest.mark.parametrize("last", [2, 3])
@pytest.mark.parametrize("offset", [0, 8, 20, 63, 64])
def test_a_torn_write_falls_back_to_the_one_before(path, last, offset):
    entries = [Counts(10 * i, 3 * i, ACTOR, i) for i in range(1, last + 1)]
    write(path, *entries)
    data = bytearray(path.read_bytes())
    data[(last % 2) * len(data) // 2 + offset] ^= 0xFF
    path.write_bytes(data)
    assert read(path) == entries[-2]
    write(path, Counts(77, 7, ACTOR, 7))
    assert read(path) == Counts(77, 7, ACTOR, 7)
    data = bytearray(path.read_bytes())
    assert len(data) == 256


def test_a_file_with_nothing_whole_in_it_counts_from_zero(path):
    path.parent.mkdir()
    path.write_bytes(b"\xff" * 256)
    assert read(path) == Counts()
    path.write_bytes(b"short")
    assert read(path) == Counts()
