"""A record of two slots: whatever is cut off in the middle of a write, the one before is there."""

import mmap

import pytest

from dreamfleet.base.records import TwoSlotRecord

SLOTS = (64, 256)
FIELDS = "QH8s"
SIZE = 8 + 18 + 4


@pytest.fixture
def memory():
    with mmap.mmap(-1, 512) as memory:
        yield memory


def open_record(memory):
    return TwoSlotRecord(memory, SLOTS, FIELDS)


def test_nothing_was_written(memory):
    assert open_record(memory).read() is None


def test_the_newest_is_read_by_whoever_opens_it(memory):
    record = open_record(memory)
    for n in range(1, 6):
        record.write(n, 3, b"abc")
        assert record.read() == open_record(memory).read() == (n, 3, b"abc".ljust(8, b"\0"))


def test_a_writer_goes_on_where_the_one_before_ended(memory):
    for n in range(1, 6):
        open_record(memory).write(n, 0, b"")
        assert open_record(memory).read()[0] == n


@pytest.mark.parametrize("written", range(SIZE))
def test_a_write_that_is_cut_off_leaves_the_one_before(memory, written):
    record = open_record(memory)
    record.write(1 << 40, 1, b"a" * 8)
    record.write(2 << 40, 2, b"b" * 8)
    before = memory[:]
    record.write(3 << 40, 3, b"c" * 8)
    (start,) = [start for start in SLOTS if memory[start : start + SIZE] != before[start : start + SIZE]]
    torn = bytearray(before)
    torn[start : start + written] = memory[start : start + written]
    is_whole = bytes(torn) == memory[:]
    memory[:] = bytes(torn)
    record = open_record(memory)
    assert record.read()[0] == (3 << 40 if is_whole else 2 << 40)
    record.write(4 << 40, 4, b"d" * 8)
    assert open_record(memory).read()[0] == 4 << 40


@pytest.mark.parametrize("start", SLOTS)
@pytest.mark.parametrize("offset", range(SIZE))
def test_a_damaged_slot_is_passed_over(memory, start, offset):
    record = open_record(memory)
    record.write(1, 0, b"")
    record.write(2, 0, b"")
    memory[start + offset] ^= 1
    assert open_record(memory).read() in [(1, 0, bytes(8)), (2, 0, bytes(8))]
