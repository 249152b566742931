"""What a store takes, and what happens when there is no room for it."""

import contextlib
import resource
from pathlib import Path

import numpy as np
import pytest

from dreamfleet.base import filesystems
from dreamfleet.errors import ConfigError, ReplayError
from dreamfleet.replay import space
from dreamfleet.replay.schema import Column, Schema
from dreamfleet.replay.space import MOST_SEGMENTS, SEGMENT_BYTES, check_fit, choose_capacity, format_bytes, plan
from tests.replay.stores import BLOCK_ROWS, all_rows, fill, open_store

SMALL = Schema([Column("x", np.dtype("f4"), (10,)), Column("is_first", np.dtype(bool), ())])
IMAGE = Schema([Column("image", np.dtype("u1"), (64, 64, 3)), Column("deter", np.dtype("f4"), (1024,))])


@pytest.mark.parametrize("schema", [SMALL, IMAGE])
@pytest.mark.parametrize("capacity", [1, 100, 1000, 50_000, 1_000_000, 5_000_000])
def test_a_plan_holds_the_capacity_and_little_more(schema, capacity):
    geometry = plan(schema, capacity)
    rows = geometry.layout.rows
    assert rows % BLOCK_ROWS == 0
    assert geometry.rows - rows >= capacity, "when the oldest segment is evicted, the capacity is still there"
    assert geometry.segments <= MOST_SEGMENTS + 1
    assert geometry.layout.size <= 1.1 * SEGMENT_BYTES or capacity // rows >= MOST_SEGMENTS - 2
    if capacity >= 50_000:  # pages are rounded up for every column
        assert geometry.total_bytes < 1.15 * capacity * (schema.row_bytes + 12) + 40 * 6 * 4096


def test_the_plan_of_a_store_that_exists_keeps_its_segments():
    assert plan(SMALL, 10_000, 640).layout.rows == 640
    assert plan(SMALL, 10_000, 640).segments == 17


def test_a_capacity_is_chosen_by_steps_and_room():
    assert choose_capacity(SMALL, 0, 10**12) == 5_000_000
    assert choose_capacity(SMALL, 1000, 10**12) == 1000
    capacity = choose_capacity(IMAGE, 0, 10**9)
    assert 0.4e9 < plan(IMAGE, capacity).total_bytes < 0.6e9
    assert choose_capacity(IMAGE, 0, 0) == 1


def test_what_does_not_fit_is_refused_with_bytes_and_total():
    geometry = plan(IMAGE, 1_000_000)
    check_fit(geometry, 1_000_000, geometry.total_bytes, "/data")
    with pytest.raises(ConfigError) as caught:
        check_fit(geometry, 1_000_000, 5 * 10**9, "/data")
    message = str(caught.value)
    for part in ("replay.capacity=1000000", "17.5 GB", "16,384 bytes per step", "/data has 5.0 GB left", "; lower it"):
        assert part in message


def test_bytes_are_readable():
    assert [format_bytes(n) for n in (5, 1500, 2e6, 3.25e9, 4e12)] == [
        "5 bytes",
        "1.5 KB",
        "2.0 MB",
        "3.2 GB",
        "4.0 TB",
    ]


def test_memory_is_known():
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < space.memory_room() <= total


@pytest.mark.parametrize("kind", ["nfs4", "fuse.glusterfs"])
def test_network_file_systems_are_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(filesystems, "find_kind", lambda path: kind)
    with (
        pytest.raises(ConfigError, match=rf"is on a network file system \({kind}\); set it to"),
        open_store(directory=tmp_path),
    ):
        pass


def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match=r"replay.directory='.*' cannot be written to \("),
        open_store(directory=tmp_path / "file" / "store"),
    ):
        pass


@contextlib.contextmanager
def largest_file(size):
    """Files above a size are refused, as all are on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_an_error_that_leaves_everything_as_it_was(tmp_path):
    with open_store(length=5, capacity=5000, directory=tmp_path) as store:
        fill(store, 300)
        added = 300
        with largest_file(4096), pytest.raises(ReplayError, match=r"has no room for another .* free some space"):
            while added < 5000:
                fill(store, 1, start=added)
                added += 1
        assert 300 < added < 1000
        assert sorted(all_rows(store)) == list(range(added)), "what came before the error is there"
        assert store.committed == added
        assert len(store.sample(3)["n"]) == 3
        fill(store, 500, start=added)  # there is space again
        assert sorted(all_rows(store)) == list(range(added + 500))
    assert not list(tmp_path.glob("*.new"))  # before, there may be one: the next segment is made ahead
    with open_store(length=5, capacity=5000, directory=tmp_path) as again:
        assert sorted(all_rows(again)) == list(range(added + 500))
        numbers = again.sample(200)["n"]
        np.testing.assert_array_equal(numbers, numbers[:, :1] + np.arange(5))


def test_a_disk_that_is_full_at_the_start_is_an_error_too(tmp_path):
    with open_store(length=5, capacity=5000, directory=tmp_path) as store:
        with largest_file(4096), pytest.raises(ReplayError, match="has no room"):
            fill(store, 1)
        fill(store, 10)
        assert sorted(all_rows(store)) == list(range(10))
