"""References to rows: what a reader gathers is what the store would have sent, or nothing at all."""

import numpy as np
import pytest

from dreamfleet.replay import consecutive_batches
from dreamfleet.replay.references import Reader, References
from tests.replay.stores import BLOCK_ROWS, fill, make_row, open_store, stack


@pytest.fixture(params=["ram", "disk"])
def open_any(request, tmp_path):
    def make(*args, **kwargs):
        directory = tmp_path / "store" if request.param == "disk" else None
        return open_store(*args, directory=directory, **kwargs)

    return make


def read(reader, store, batch):
    return reader.read(batch, store.paths(batch["stepid"]), store.oldest)


def test_references_stand_for_the_rows_that_would_have_been_sent(open_any):
    with open_any(length=BLOCK_ROWS + 7, capacity=1000) as store:
        for n in range(600):
            store.add_many(stack([make_row(n, is_first=n % 50 == 0), make_row(10_000 + n)]), [0, 1])
        reader = Reader()
        for mode in ("a", "b", "c"):
            references = store.sample_references(30, mode)
            assert sum(value.nbytes for value in references.values()) < 30 * store.length * 22
            rows = read(reader, store, references)
            store._rngs.pop(mode)  # the same draws again
            expected = store.sample(30, mode)
            assert rows.keys() == expected.keys()
            for key, value in expected.items():
                np.testing.assert_array_equal(rows[key], value, key)
                assert rows[key].dtype == value.dtype
            rows["n"][:] = -1
            assert (store.sample(5)["n"] >= 0).all(), "the rows are copies"


def test_chunks_of_references_force_the_first_row_of_the_sequence_only():
    with open_store(length=13, capacity=1000) as store:
        fill(store, 100)
        chunks = consecutive_batches(References(store), "train", batch_size=4, length=4, consec=3, context=1)
        reader = Reader()
        first, second = (read(reader, store, next(chunks)) for _ in range(2))
        np.testing.assert_array_equal(second["n"], first["n"] + 4)
        assert first["is_first"][:, 0].all() and not first["is_first"][:, 1:].any() and not second["is_first"].any()
        assert (first["consec"] == 0).all() and (second["consec"] == 1).all()


def test_rows_of_a_deleted_file_are_gone_unless_it_was_mapped(tmp_path):
    with open_store(length=5, capacity=200, directory=tmp_path) as store:
        fill(store, 60)
        references = store.sample_references(8)
        paths, oldest = store.paths(references["stepid"]), store.oldest
        early, late = Reader(), Reader()
        expected = early.read(references, paths, oldest)
        fill(store, 1000, start=60)
        assert store.paths(references["stepid"]) == {}
        assert late.read(references, paths, oldest) is None
        again = early.read(references, {}, oldest)
        assert again is not None
        np.testing.assert_array_equal(again["n"], expected["n"])
        assert early.read(references, {}, store.oldest) is None, "what is gone is let go of"
        assert not early._segments


def test_memory_that_is_used_again_is_not_taken_for_what_it_was():
    with open_store(length=5, capacity=200) as store:
        fill(store, 60)
        references = store.sample_references(8)
        paths, oldest = store.paths(references["stepid"]), store.oldest
        early, late = Reader(), Reader()
        assert early.read(references, paths, oldest) is not None
        fill(store, 1000, start=60)
        assert early.read(references, paths, oldest) is None
        assert late.read(references, paths, oldest) is None
        fresh = store.sample_references(8)
        assert read(late, store, fresh)["n"].min() >= 60


def test_segments_of_an_earlier_store_are_let_go_of():
    reader = Reader()
    for _ in range(3):
        with open_store(length=5, capacity=200) as store:
            fill(store, 60)
            assert read(reader, store, store.sample_references(8)) is not None
            assert len(reader._segments) == 1
