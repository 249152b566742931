"""Batches for the learner: references are turned into rows, and what is gone is asked for again."""

import dataclasses
import queue
import threading

import numpy as np
import pytest

from dreamfleet.replay import Store
from dreamfleet.roles.learner.batches import MOST_MISSES, BatchSource, Resolver, parallel_stream
from dreamfleet.roles.protocol import SampleRequest, SegmentPlaces
from tests.roles.replays import LENGTH, NEAR, send


class NearClient:
    """Calls a role in place, as a learner in another process on the machine."""

    session = ""

    def __init__(self, role):
        self.role, self.requests = role, []

    def call(self, method, data=None, *, meta, **_):
        request = SampleRequest.from_meta(meta)
        self.requests.append(request)
        if request.reader:
            request = dataclasses.replace(request, reader=NEAR)
        reply = self.role.methods()[method](data, request.to_meta())
        return type("Done", (), {"meta": reply.meta, "result": lambda self, timeout: reply.data})()


def take(client, count, **options):
    counts = []
    batches = parallel_stream(
        client, "train", prefetch=1, on_counts=counts.append, is_over=lambda: False, wait_s=0.0, **options
    )
    return [next(batches) for _ in range(count)], counts


@pytest.mark.parametrize("storage", ["disk", "ram"])
def test_the_learner_turns_references_into_rows(open_role, storage):
    role = open_role(storage)
    send(role, range(200), 1)
    batches, counts = take(NearClient(role), 20)
    assert role.stats()["reference_batches"] == 20
    for batch in batches:
        np.testing.assert_array_equal(batch["n"], batch["n"][:, :1] + np.arange(LENGTH))
        assert set(batch) == {"n", "is_first", "is_last", "stepid", "consec"}
    assert counts[-1].samples == 20 * 4


def test_a_batch_that_is_gone_is_asked_for_again_and_counted_once(open_role, monkeypatch):
    role, client = open_role(), None
    send(role, range(50), 1)
    client = NearClient(role)
    resolve, misses = Resolver.resolve, [1, 3]

    def miss_some(self, batch, references):
        misses[:] = [left - 1 for left in misses]
        if 0 in misses:
            references = SegmentPlaces({}, references.oldest)
            self._reader._segments.clear()
        return resolve(self, batch, references)

    monkeypatch.setattr(Resolver, "resolve", miss_some)
    batches, _ = take(client, 5)
    assert len(batches) == 5
    assert [request.again for request in client.requests] == [False, True, False, True, False, False, False]
    assert role.limiter.samples == 5 * 4


def test_where_nothing_can_be_mapped_rows_are_asked_for(open_role, monkeypatch, caplog):
    role = open_role()
    send(role, range(50), 1)
    client = NearClient(role)
    monkeypatch.setattr(Store, "paths", lambda self, ids: {"0": "/nowhere"})
    batches, _ = take(client, 5)
    assert len(batches) == 5 and "n" in batches[-1]
    assert [request.reader is not None for request in client.requests] == [True] * MOST_MISSES + [False] * 5
    assert "requesting rows instead" in caplog.text


def test_after_a_missing_chunk_its_sequels_are_left_out():
    resolver = Resolver()
    chunk = lambda consec: {"consec": np.full((2, 3), consec)}  # noqa: E731
    gone = {"stepid": np.zeros((2, 3, 20), np.uint8), "is_first": np.zeros((2, 3), bool), "consec": np.zeros((2, 3))}
    assert resolver.resolve(chunk(1), None) is not None
    assert resolver.resolve(gone, SegmentPlaces({}, 0)) is None
    assert resolver.resolve(chunk(1), None) is None
    assert resolver.resolve(chunk(2), None) is None
    assert resolver.resolve(chunk(0), None) is not None
    assert resolver.resolve(chunk(1), None) is not None


def raise_once():
    yield {"n": 1}
    raise KeyError("a key of mine")


@pytest.mark.parametrize(("batches", "error"), [(lambda: iter([{"n": 1}]), StopIteration), (raise_once, KeyError)])
def test_a_source_ends_and_fails_in_the_thread_that_trains_only(batches, error):
    failures, received = queue.Queue(), queue.Queue()
    source = BatchSource(batches(), on_failure=failures.put)
    assert iter(source) is source and next(source) == {"n": 1}
    with pytest.raises(error):
        next(source)

    def read():
        try:
            while True:
                received.put(next(source))
        except BaseException as failure:
            received.put(failure)

    source = BatchSource(batches(), on_failure=failures.put)
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert received.get() == {"n": 1}
    if error is KeyError:
        assert isinstance(failures.get(), KeyError)
    source.wait_unread()
    assert received.empty() and failures.empty() and reader.is_alive()


def test_a_source_can_be_saved():
    source = BatchSource(iter(()), on_failure=pytest.fail)
    source.load(source.save())
