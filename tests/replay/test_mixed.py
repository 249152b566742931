"""Fresh steps and those of another store: the share is exact, and everything goes back to where it came from."""

import numpy as np
import pytest

from dreamfleet.errors import ReplayError
from dreamfleet.options.replay import SamplingOptions
from dreamfleet.replay import consecutive_batches
from dreamfleet.replay.contract import AddsMany, Closes, CountsSteps, GivesReferences, HasCapacity, KeepsNotes
from dreamfleet.replay.frozen import FrozenStore
from dreamfleet.replay.mixed import MixedStore
from dreamfleet.replay.references import Reader, reference_batches
from tests.replay.stores import all_columns, make_row, open_store, stack
from tests.replay.test_frozen import digest

LENGTH, CONTEXT = 10, 2
OTHER = 10_000  # numbers of the other store's rows begin here


def make_fresh(n, is_first=False) -> dict:
    return {**make_row(n, is_first), "state": np.float16([n % 1000, 1]), "value": np.float32(1)}


@pytest.fixture
def recorded(tmp_path):
    """Rows with the states of a larger agent, without the value of fresh ones, and with a column of their own."""
    with open_store(LENGTH, 1000, directory=tmp_path / "other") as store:
        for n in range(OTHER, OTHER + 300):
            states = {"state": np.ones(5, np.float16), "extra": np.zeros(3)}
            store.add({**make_row(n, is_first=n % 50 == 0), **states}, 0)
    return tmp_path / "other"


@pytest.fixture(params=["ram", "disk"])
def mix(request, recorded, tmp_path):
    opened = []

    def make(share=0.5, rows=300, sampling=None, truncates=False, seed=0, **options) -> MixedStore:
        directory = tmp_path / "fresh" if request.param == "disk" else None
        sampling = sampling or SamplingOptions()
        fresh = open_store(
            LENGTH, 1000, directory=directory, sampling=sampling, truncates=truncates, seed=seed, **options
        ).__enter__()
        for n in range(fresh.steps, rows):
            fresh.add(make_fresh(n, is_first=n % 50 == 0), 0)
        other = FrozenStore(LENGTH, recorded, sampling=sampling, truncates=truncates, seed=seed)
        opened.append(MixedStore(fresh, other, share, CONTEXT))
        return opened[-1]

    yield make
    for replay in opened:
        replay.close()


def is_other(batch):
    return batch["n"][:, 0] >= OTHER


@pytest.mark.parametrize(("share", "size"), [(0.5, 16), (0.1, 4), (0.3, 7), (0.0, 5), (0.75, 4), (1 / 3, 16)])
def test_the_share_is_exact_over_time(mix, share, size):
    replay, total = mix(share), 0
    for number in range(1, 61):
        batch = replay.sample(size)
        assert (np.diff(batch["n"], axis=1) == 1).all(), "a sequence is of one store"
        total += is_other(batch).sum()
        assert abs(total - share * size * number) < 1
        assert not is_other(batch).all()
    assert total == pytest.approx(60 * size * share)
    assert replay.stats()["mix_sampled"] == total


def test_a_batch_is_never_of_the_other_alone(mix):
    replay = mix(1.0)
    assert [is_other(replay.sample(4)).sum() for _ in range(5)] == 5 * [3]


def test_modes_have_their_own_share(mix):
    replay = mix(0.25)
    for _ in range(10):
        assert is_other(replay.sample(4, "report")).sum() == is_other(replay.sample(4, "train")).sum() == 1


def test_one_batch_has_the_columns_of_fresh_rows(mix):
    batch = mix().sample(8)
    assert set(batch) == {"n", "vector", "is_first", "is_last", "state", "value", "stepid"}
    assert batch["state"].dtype == np.float16
    for key in ("state", "value"):
        assert (batch[key][is_other(batch)] == 0).all(), "there is none of this agent's"
    np.testing.assert_array_equal(batch["state"][~is_other(batch)][..., 0], batch["n"][~is_other(batch)])


def test_what_comes_after_the_context_is_first_in_sequences_of_the_other(mix):
    batch = mix().sample(200)
    assert batch["is_first"][is_other(batch), : CONTEXT + 1].all()
    own = batch["is_first"][~is_other(batch)]
    assert own[:, 0].all()
    truth = batch["n"] % 50 == 0
    np.testing.assert_array_equal(own[:, 1:], truth[~is_other(batch)][:, 1:])
    np.testing.assert_array_equal(batch["is_first"][:, CONTEXT + 1 :], truth[:, CONTEXT + 1 :])


def test_references_stand_for_the_rows_that_would_have_been_sent(mix):
    def make_stream(replay, mode):
        return consecutive_batches(replay, mode, batch_size=6, length=4, consec=2, context=CONTEXT)

    replay, reader = mix(), Reader()
    references = reference_batches(make_stream, replay, "train")
    read = [reader.read(b, replay.paths(b["stepid"]), replay.oldest) for b in (next(references) for _ in range(6))]
    if replay._fresh._files.is_lasting:
        replay._fresh.close()
    else:  # the same steps again, in a store of another id
        for batch in read:
            batch["stepid"][~is_other(batch)] = 0
    again = make_stream(mix(), "train")
    for rows in read:
        expected = next(again)
        if not rows["stepid"][~is_other(rows)].any():
            expected["stepid"][~is_other(expected)] = 0
        assert rows is not None and rows.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_array_equal(rows[key], value, key)
    assert {segment_id[:8] for segment_id in reader._lasting} == {replay._other.store_id}


def test_a_reader_keeps_the_segments_of_the_other_and_lets_go_of_evicted_ones(mix):
    replay, reader, lasting = mix(), Reader(), {}
    for rows in range(300, 4000, 100):
        for n in range(rows, rows + 100):
            replay.add(make_fresh(n), 0)
        references = replay.sample_references(8)
        data = reader.read(references, replay.paths(references["stepid"]), replay.oldest)
        assert data is not None and is_other(data).sum() == 4
        lasting = lasting or {segment_id: reader._segments[segment_id] for segment_id in reader._lasting}
    own = {segment_id for segment_id in reader._segments if segment_id not in reader._lasting}
    assert own and min(int.from_bytes(segment_id[8:], "big") for segment_id in own) >= replay.oldest > 0
    assert lasting and all(reader._segments[segment_id] is segment for segment_id, segment in lasting.items())


def test_updates_go_to_where_the_sequence_came_from(mix, recorded):
    before = digest(recorded)
    replay = mix()
    for _ in range(30):
        batch = replay.sample(50)
        replay.update({"stepid": batch["stepid"], "state": np.full((*batch["n"].shape, 2), 5, np.float16)})
    assert (all_columns(replay._fresh)["state"][20:-20] == 5).all(), "each of these was sampled"
    assert replay.stats()["updates_ignored"] == 0
    assert digest(recorded) == before


def test_bad_updates_are_refused(mix):
    replay = mix()
    batch = replay.sample(8)
    for bad in (
        {"stepid": batch["stepid"][..., :7], "state": batch["state"]},
        {"stepid": batch["stepid"], "state": batch["state"][:, :-1]},
        {"stepid": batch["stepid"], "state": batch["vector"]},
        {"stepid": batch["stepid"], "state": [[1], [2, 3]]},
    ):
        with pytest.raises(ReplayError):
            replay.update(bad)


def test_priorities_go_to_where_the_sequence_came_from(mix):
    replay = mix(sampling=SamplingOptions(uniform=0.0, priority=1.0, priority_initial=1.0, priority_zero=False))
    for _ in range(30):
        batch = replay.sample(100)
        wanted = np.isin(batch["n"], [50, OTHER + 100])
        replay.update({"stepid": batch["stepid"], "priority": wanted.astype(np.float32)})
    batch = replay.sample(40)
    assert is_other(batch).sum() == 20
    assert np.isin(batch["n"], [50, OTHER + 100]).any(1).all()


def test_counts_are_those_of_fresh_steps(mix):
    replay = mix(rows=30)
    assert (len(replay), replay.steps, replay.capacity) == (21, 30, 1000)
    replay.add_many(stack([make_fresh(30)]), [0], b"x")
    assert (len(replay), replay.steps, replay.note) == (22, 31, b"x")


def test_it_can_do_what_a_store_can(mix):
    replay = mix()
    for ability in (AddsMany, KeepsNotes, GivesReferences, HasCapacity, CountsSteps, Closes):
        assert isinstance(replay, ability)


@pytest.mark.parametrize("mix", ["disk"], indirect=True)
def test_a_mixture_goes_on_exactly(mix):
    replay = mix(0.35, truncates=True, seed=1)
    for _ in range(3):
        replay.sample(7)
    saved = replay.save()
    expected = [replay.sample(7)["n"] for _ in range(5)]
    replay.close()
    again = mix(0.35, truncates=True, seed=2)
    again.load(saved)
    for numbers in expected:
        np.testing.assert_array_equal(again.sample(7)["n"], numbers)
