"""Sampled sequences cut into consecutive chunks."""

import itertools

import numpy as np
import pytest

from dreamfleet.replay import Store, consecutive_batches


@pytest.fixture
def replay() -> Store:
    replay = Store(length=3 * 4 + 2, capacity=1000)
    for n in range(100):
        replay.add({"n": np.int64(n), "is_first": np.bool_(n == 0), "is_last": np.bool_(False)}, 0)
    return replay


def take(replay, count, **kwargs) -> list[dict]:
    return list(itertools.islice(consecutive_batches(replay, "train", batch_size=5, **kwargs), count))


def test_chunks_follow_each_other_and_share_their_context(replay):
    chunks = take(replay, 6, length=4, consec=3, context=2)
    for first, second, third in (chunks[:3], chunks[3:]):
        assert first["n"].shape == (5, 6)
        start = first["n"][:, :1]
        np.testing.assert_array_equal(first["n"], start + np.arange(6))
        np.testing.assert_array_equal(second["n"], start + 4 + np.arange(6))
        np.testing.assert_array_equal(third["n"], start + 8 + np.arange(6))
        np.testing.assert_array_equal(second["stepid"][:, :2], first["stepid"][:, -2:])
    assert (chunks[0]["n"] != chunks[3]["n"]).any()


def test_chunks_are_numbered(replay):
    chunks = take(replay, 4, length=4, consec=3, context=2)
    assert all(chunk["consec"].dtype == np.int32 and chunk["consec"].shape == (5, 6) for chunk in chunks)
    assert [np.unique(chunk["consec"]).tolist() for chunk in chunks] == [[0], [1], [2], [0]]


def test_only_the_first_chunk_begins_with_a_forced_first_row(replay):
    first, second, _ = take(replay, 3, length=4, consec=3, context=2)
    assert first["is_first"][:, 0].all()
    assert not second["is_first"].any()


def test_a_learner_that_changes_a_chunk_does_not_change_the_next(replay):
    batches = consecutive_batches(replay, "train", batch_size=1, length=4, consec=3, context=2)
    first = next(batches)
    start = int(first["n"][0, 0])
    first["n"][:] = -1
    assert next(batches)["n"].tolist() == [list(range(start + 4, start + 10))]


def test_no_context_means_no_overlap(replay):
    first, second = take(replay, 2, length=4, consec=2, context=0)
    assert first["n"].shape == (5, 4)
    np.testing.assert_array_equal(second["n"], first["n"] + 4)


@pytest.mark.parametrize(("length", "consec"), [(3, 1), (6, 2), (12, 1)])
def test_reports_may_be_shorter_than_the_sampled_sequence(replay, length, consec):
    chunks = take(replay, consec, length=length, consec=consec, context=2)
    assert all(chunk["n"].shape == (5, length + 2) for chunk in chunks)
    assert chunks[0]["is_first"][:, 0].all()


def test_chunks_that_do_not_fit_the_sequence_are_our_mistake(replay):
    with pytest.raises(AssertionError):
        take(replay, 1, length=5, consec=3, context=2)
