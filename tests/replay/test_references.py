"""References to rows: what a reader gathers is what the store would have sent, or nothing at all."""

import numpy as np
import pytest

from dreamfleet.errors import NeedsRows, ReplayError
from dreamfleet.replay import consecutive_batches
from dreamfleet.replay.contract import AddsMany, Closes, GivesReferences, HasCapacity, KeepsNotes, Truncates
from dreamfleet.replay.references import Reader, reference_batches
from dreamfleet.replay.streams import slice_steps
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

        def make_stream(replay, mode):
            return consecutive_batches(replay, mode, batch_size=4, length=4, consec=3, context=1)

        chunks = reference_batches(make_stream, store, "train")
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


def looks_up(batch):
    return batch["n"]


def looks_whether_it_is_first(batch):
    return batch["is_first"]


def asks(batch):
    return "n" in batch


def gets(batch):
    return batch.get("n")


def sets(batch):
    batch["n"] = np.zeros(3)


def drops(batch):
    del batch["stepid"]


def pops(batch):
    return batch.pop("n")


def goes_through_items(batch):
    return {key: value for key, value in batch.items() if key != "n"}


def goes_through_keys(batch):
    return [key for key in batch]  # noqa: C416


def unpacks(batch):
    return {**batch}


def makes_a_dict(batch):
    return dict(batch)


def joins(batch):
    return batch | {"extra": np.zeros(3)}


@pytest.mark.parametrize(
    "look",
    [
        looks_up,
        looks_whether_it_is_first,
        asks,
        gets,
        sets,
        drops,
        pops,
        goes_through_items,
        goes_through_keys,
        unpacks,
        makes_a_dict,
        joins,
        len,
        sorted,
    ],
)
def test_a_stream_that_looks_at_rows_says_so(look):
    def make_stream(replay, mode):
        for batch in consecutive_batches(replay, mode, batch_size=4, length=5, consec=1, context=0):
            look(batch)
            yield batch

    with open_store(length=5, capacity=1000) as store:
        fill(store, 100)
        with pytest.raises(NeedsRows):
            next(reference_batches(make_stream, store, "train"))


@pytest.mark.parametrize("look", [len, bool, lambda replay: replay.stats(), lambda replay: hasattr(replay, "capacity")])
def test_a_stream_that_asks_the_replay_for_more_says_so(look):
    def make_stream(replay, mode):
        look(replay)
        return consecutive_batches(replay, mode, batch_size=4, length=5, consec=1, context=0)

    with open_store(length=5, capacity=1000) as store:
        fill(store, 100)
        with pytest.raises(NeedsRows):
            next(reference_batches(make_stream, store, "train"))


@pytest.mark.parametrize("error", [KeyError("mine"), AttributeError("mine"), TypeError("mine"), ReplayError("mine")])
def test_any_other_exception_is_one_of_the_stream(error):
    def make_stream(replay, mode):
        replay.sample(4, mode)
        raise error

    with open_store(length=5, capacity=1000) as store:
        fill(store, 100)
        with pytest.raises(type(error), match="mine") as caught:
            next(reference_batches(make_stream, store, "train"))
        assert caught.value is error


def test_a_stream_that_makes_batches_of_its_own_needs_rows():
    def make_stream(replay, mode):
        while True:
            yield {"stepid": replay.sample(4, mode)["stepid"]}

    with open_store(length=5, capacity=1000) as store:
        fill(store, 100)
        with pytest.raises(NeedsRows):
            next(reference_batches(make_stream, store, "train"))


def test_a_stream_that_only_numbers_and_slices_works_on_references():
    def make_stream(replay, mode):
        while True:
            batch = slice_steps(replay.sample(4, mode), 1, replay.length)
            assert batch["stepid"].shape == (4, 4, 20) and batch.get("consec") is None and "consec" not in batch
            batch["consec"] = np.zeros((4, 4), np.int32)
            yield batch

    with open_store(length=5, capacity=1000) as store:
        fill(store, 100)
        batch = next(reference_batches(make_stream, store, "train"))
        assert type(batch) is dict and set(batch) == {"stepid", "is_first", "consec"}
        rows = read(Reader(), store, batch)
        np.testing.assert_array_equal(rows["n"], rows["n"][:, :1] + np.arange(4))


@pytest.mark.parametrize("protocol", [AddsMany, KeepsNotes, GivesReferences, Truncates, HasCapacity, Closes])
def test_the_store_offers_every_option_of_the_contract(protocol):
    with open_store(length=5, capacity=1000) as store:
        assert isinstance(store, protocol)
    assert not isinstance(object(), protocol)
