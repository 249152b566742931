"""A store that is only read: its steps as they were when it was opened, whatever becomes of it, and no trace of us."""

import hashlib

import numpy as np
import pytest

from dreamfleet.errors import ReplayError
from dreamfleet.options.replay import SamplingOptions
from dreamfleet.replay.frozen import FrozenStore
from dreamfleet.replay.references import Reader
from tests.replay.stores import add, all_rows, fill, make_row, open_store

LENGTH = 10


@pytest.fixture
def recorded(tmp_path):
    """The directory of a store of two trajectories that nobody has open."""
    with open_store(LENGTH, 1000, directory=tmp_path) as store:
        fill(store, 300)
        fill(store, 100, worker=1, start=10_000)
    return tmp_path


def digest(directory) -> dict:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def test_sequences_are_those_of_the_store(recorded):
    frozen = FrozenStore(LENGTH, recorded)
    with open_store(LENGTH, 1000, directory=recorded) as store:
        assert (len(frozen), frozen.steps) == (len(store), 400)
        rows = all_rows(store)
    data = frozen.sample(500)
    assert (np.diff(data["n"], axis=1) == 1).all()
    assert set(data["n"][:, 0].tolist()) <= rows.keys()
    np.testing.assert_array_equal(data["vector"][3, 4], rows[int(data["n"][3, 4])]["vector"])
    assert data["is_first"][:, 0].all() and not data["is_first"][:, 1:].any()


def test_it_leaves_no_trace(recorded):
    before = digest(recorded)
    frozen = FrozenStore(LENGTH, recorded, sampling=SamplingOptions(priority=1.0))
    batch = frozen.sample(50)
    states = {"vector": np.full_like(batch["vector"], 7.0), "priority": np.ones(batch["n"].shape)}
    frozen.update({"stepid": batch["stepid"], **states})
    frozen.add(make_row(5), 0)
    frozen.close()
    assert digest(recorded) == before
    assert not (FrozenStore(LENGTH, recorded).sample(500)["vector"] == 7.0).all(-1).any()


def test_a_store_in_use_is_as_it_was_when_it_was_opened(tmp_path):
    with open_store(LENGTH, 400, directory=tmp_path) as store:
        fill(store, 200)
        frozen, reader = FrozenStore(LENGTH, tmp_path), Reader()
        fill(store, 2000, start=200)  # evicts all of it
        assert not {path.name for path in tmp_path.glob("*.segment")} & {"000000000000.segment"}
        for _ in range(20):
            references = frozen.sample_references(8)
            rows = reader.read(references, frozen.paths(references["stepid"]), frozen.oldest)
            assert rows is not None and rows["n"].max() < 200
        assert frozen.sample(200)["n"].max() < 200


def test_references_stand_for_the_rows_that_would_have_been_sent(recorded):
    one, other = FrozenStore(LENGTH, recorded, seed=3), FrozenStore(LENGTH, recorded, seed=3)
    references, expected = one.sample_references(30), other.sample(30)
    rows = Reader().read(references, one.paths(references["stepid"]), one.oldest)
    assert rows is not None and rows.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(rows[key], value, key)


def test_priorities_are_kept_in_memory(recorded):
    options = SamplingOptions(uniform=0.0, priority=1.0, priority_initial=1.0, priority_zero=False)
    frozen = FrozenStore(LENGTH, recorded, sampling=options)
    for _ in range(30):  # until each step had its turn
        batch = frozen.sample(100)
        frozen.update({"stepid": batch["stepid"], "priority": (batch["n"] == 123).astype(np.float32)})
    batch = frozen.sample(50)
    assert (batch["n"] == 123).any(1).all()
    assert not (FrozenStore(LENGTH, recorded, sampling=options).sample(50)["n"] == 123).any(1).all()


def test_it_goes_on_exactly_though_there_are_more_steps(recorded):
    frozen = FrozenStore(LENGTH, recorded, truncates=True, seed=1)
    frozen.sample(5)
    saved, expected = frozen.save(), frozen.sample(20)["n"]
    with open_store(LENGTH, 1000, directory=recorded) as store:
        add(store, range(300, 400))
    again = FrozenStore(LENGTH, recorded, truncates=True, seed=2)
    assert len(again) > len(frozen)
    again.load(saved)
    np.testing.assert_array_equal(again.sample(20)["n"], expected)
    assert len(again) == len(frozen)


def test_too_few_steps_are_refused(tmp_path):
    with open_store(5, 1000, directory=tmp_path) as store:
        fill(store, 9)
    with pytest.raises(ReplayError, match="holds no sequence of 10 steps"):
        FrozenStore(LENGTH, tmp_path)
