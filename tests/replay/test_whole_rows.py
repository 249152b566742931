"""Rows are whole: who samples while rows are updated gets every row as it was at one time, with all of its arrays."""

import multiprocessing
import threading
from multiprocessing.connection import Connection

import numpy as np
import pytest

from dreamfleet.replay.archive import Archive
from dreamfleet.replay.gather import gather
from dreamfleet.replay.references import Reader
from tests.replay.stores import open_store

ROWS, LENGTH, SIZE = 192, 64, 20_000
ROUNDS = 150


def fill(store) -> None:
    """Few rows with large arrays, all of the same value, so that readers and writers meet."""
    for _ in range(ROWS // 64):
        flags = {name: np.zeros(64, bool) for name in ("is_first", "is_last")}
        store.add_many({"a": np.zeros((64, SIZE), np.int32), "b": np.zeros((64, 8), np.int32), **flags}, [0] * 64)


def check_whole(batch) -> None:
    value = batch["a"][..., :1]
    assert (batch["a"] == value).all(), "a row of one array is torn"
    assert (batch["b"] == value).all(), "the arrays of a row are of different updates"


def keep_updating(store, is_over: threading.Event) -> None:
    ids = np.unique(store.sample(64)["stepid"].reshape(-1, 20), axis=0)
    value = 0
    while not is_over.is_set():
        value += 1
        shape = (len(ids), SIZE)
        store.update(
            {"stepid": ids, "a": np.full(shape, value, np.int32), "b": np.full((len(ids), 8), value, np.int32)}
        )


@pytest.fixture(params=["ram", "disk"])
def updated(request, tmp_path):
    """A store that another thread updates all the time."""
    directory = tmp_path / "store" if request.param == "disk" else None
    with open_store(LENGTH, 512, directory=directory) as store:
        fill(store)
        is_over = threading.Event()
        writer = threading.Thread(target=keep_updating, args=(store, is_over))
        writer.start()
        try:
            yield store
        finally:
            is_over.set()
            writer.join()


def test_samples_beside_updates_are_whole(updated):
    for _ in range(ROUNDS):
        check_whole(updated.sample(2))


@pytest.mark.distributed
def test_a_reader_in_another_process_gets_whole_rows(updated):
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=read_beside, args=(there,))
    process.start()
    there.close()
    try:
        answers = []
        for _ in range(ROUNDS):
            references = updated.sample_references(2)
            here.send((references, updated.paths(references["stepid"]), updated.oldest))
            answers.append(here.recv())
        # It may give up on rows that are changed all the time, and asks for others; what it gives is whole.
        assert set(answers) <= {"whole", "none"} and "whole" in answers, set(answers)
    finally:
        here.close()
        process.join()


def read_beside(connection: Connection) -> None:
    """Answers with what is wrong with the rows of references, until the other end is closed."""
    reader = Reader()
    while True:
        try:
            references = connection.recv()
        except EOFError:
            return
        batch = reader.read(*references)
        try:
            if batch is not None:
                check_whole(batch)
            connection.send("none" if batch is None else "whole")
        except AssertionError as error:
            connection.send(str(error))


def test_rows_in_the_middle_of_an_update_are_not_handed_out(tmp_path):
    with open_store(LENGTH, 512, directory=tmp_path) as store:
        fill(store)
        references = store.sample_references(64)
        segments = store._rows.pool.live
        serial, segment = next(iter(segments.items()))
        with segment.changing(np.array([3])):
            assert gather(segments, np.full(5, serial), np.arange(5), patience_s=0.01) is None
            assert Reader().read(references, store.paths(references["stepid"]), store.oldest) is None
        assert gather(segments, np.full(5, serial), np.arange(5)) is not None


def test_a_writer_that_was_killed_amid_an_update_leaves_rows_that_can_be_read(tmp_path):
    with open_store(LENGTH, 512, directory=tmp_path) as store:
        fill(store)
        next(iter(store._rows.pool.live.values()))._begun[0] += 1
    archive = Archive(tmp_path)
    assert [len(archive.read(*rows)["a"]) for rows in archive.trajectories()] == [ROWS], "also before it is opened"
    with open_store(LENGTH, 512, directory=tmp_path) as store:
        for segment in store._rows.pool.live.values():
            assert (segment.owners["begun"] == segment.owners["ended"]).all()
        references = store.sample_references(16)
        assert Reader().read(references, store.paths(references["stepid"]), store.oldest) is not None


def test_a_segment_of_an_earlier_version_is_read(tmp_path):
    """There the place in the trajectory took the bytes of the counts of changes too, which are its upper half."""
    earlier = np.dtype([("worker", "<i8"), ("trajectory", "<u8"), ("index", "<u8")])
    with open_store(LENGTH, 512, directory=tmp_path) as store:
        fill(store)
        owners = np.concatenate([segment.owners for segment in store._rows.pool.live.values()])
        used = owners[owners["trajectory"] > 0]
        np.testing.assert_array_equal(used.view(earlier)["index"], used["index"])
        assert not owners["begun"].any() and not owners["ended"].any()
