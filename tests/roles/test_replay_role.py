"""The replay role with stores: batches are taken once, whatever dies in between; references go to those near."""

import os

import numpy as np
import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import BadRequest
from dreamfleet.options import read_args
from dreamfleet.replay import Store, consecutive_batches
from dreamfleet.replay.references import reader_place
from dreamfleet.roles.learner.batches import MOST_MISSES, Resolver, remote_batches
from dreamfleet.roles.replay.counts import CountsFile
from dreamfleet.roles.replay.role import ReplayRole
from tests.fleet import make_args

LENGTH = 9
NEAR = {**reader_place(), "pid": os.getpid() + 1}


def make_stream(replay, mode):
    return consecutive_batches(replay, mode, batch_size=4, length=8, consec=1, context=1)


@pytest.fixture
def open_role(tmp_path):
    """Opens a role on the stores of the test's directory; the one before is dropped as a kill would."""
    roles = []

    def drop():
        if roles:
            for mode in ("train", "eval"):
                store = roles[-1]._replays[mode]
                store._closing.set()
                if store._rows:
                    store._rows.pool._worker.shutdown()
                store._files.close()
            roles[-1]._file.close()

    def make(storage="disk", stream=make_stream, **options):
        drop()
        directories = {mode: tmp_path / "replay" / mode if storage == "disk" else None for mode in ("train", "eval")}
        stores = [Store(LENGTH, 1000, directory=path, sync_every=0.0) for path in directories.values()]
        roles.append(ReplayRole(*stores, stream, read_args(make_args(tmp_path, train_ratio=0.0, **options))))
        return roles[-1]

    yield make
    drop()


def make_batch(numbers, is_eval=False, env_ids=None):
    count = len(numbers)
    return {
        "envid": np.zeros(count, np.int64) if env_ids is None else np.array(env_ids),
        "is_eval": np.broadcast_to(np.array(is_eval), count).copy(),
        "n": np.array(numbers, np.int64),
        "is_first": np.array(numbers) == 0,
        "is_last": np.zeros(count, bool),
    }


def send(role, numbers, sequence, **kwargs):
    return role.add_batch(make_batch(numbers, **kwargs), {"actor": "me", "sequence": sequence}).meta


def kept(role, mode="train"):
    rows = role._replays[mode]._rows
    numbers = [s.columns["n"][s.numbers > 0] for s in rows.pool.live.values()] if rows else [[]]
    return sorted(int(n) for part in numbers for n in part)


def test_a_batch_that_is_sent_again_is_taken_once(open_role):
    role = open_role()
    assert send(role, range(10), 1)["inserts"] == 10
    assert send(role, range(10), 1)["inserts"] == 10
    assert send(role, range(10, 15), 2)["inserts"] == 15
    assert send(role, range(10), 1)["inserts"] == 15
    assert kept(role) == list(range(15))
    assert role.stats()["duplicates"] == 2


@pytest.mark.parametrize("storage", ["disk", "ram"])
def test_the_mark_and_the_inserts_survive_a_kill(open_role, storage):
    role = open_role(storage)
    send(role, range(10), 1)
    send(role, range(10, 20), 2)
    role = open_role(storage)
    assert role.limiter.inserts == 20
    assert kept(role) == (list(range(20)) if storage == "disk" else [])
    if storage == "disk":
        assert send(role, range(10, 20), 2)["inserts"] == 20
        assert kept(role) == list(range(20))
    assert send(role, range(20, 25), 3)["inserts"] == 25


def test_a_kill_between_rows_and_counts_neither_loses_nor_doubles(open_role, monkeypatch):
    role = open_role()
    send(role, range(10), 1)
    monkeypatch.setattr(CountsFile, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        send(role, range(10, 20), 2)
    monkeypatch.undo()
    role = open_role()
    assert role.limiter.inserts == 20 and kept(role) == list(range(20))
    assert send(role, range(10, 20), 2)["inserts"] == 20
    assert kept(role) == list(range(20))


def test_a_kill_between_the_two_replays_neither_loses_nor_doubles(open_role, monkeypatch):
    role = open_role()
    is_eval = np.arange(10) % 2 == 1
    monkeypatch.setattr(role._replays["eval"], "add_many", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        send(role, range(10), 1, is_eval=is_eval, env_ids=is_eval.astype(int))
    role = open_role()
    assert (kept(role), kept(role, "eval")) == ([0, 2, 4, 6, 8], [])
    send(role, range(10), 1, is_eval=is_eval, env_ids=is_eval.astype(int))
    assert (kept(role), kept(role, "eval")) == ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9])
    assert role.limiter.inserts == 5


def test_another_actor_counts_from_the_start(open_role):
    role = open_role()
    send(role, range(10), 7)
    meta = {"actor": "other", "sequence": 1}
    assert role.add_batch(make_batch(range(10, 12)), meta).meta["inserts"] == 12


def test_rows_that_a_store_refuses_are_the_fault_of_the_sender(open_role):
    role = open_role()
    send(role, range(50), 1)
    batch = make_batch(range(3))
    with pytest.raises(BadRequest, match="extra"):
        role.add_batch({**batch, "extra": np.zeros(3)}, {})
    with pytest.raises(BadRequest, match="'n' has shape"):
        ids = role.sample_batch("train", None, {}).data["stepid"]
        role.update({"stepid": ids, "n": np.zeros(5)}, {})
    assert role.limiter.inserts == 50


def test_a_checkpoint_holds_a_watermark_and_the_rows_stay_where_they_are(open_role, tmp_path):
    role = open_role()
    send(role, range(50), 1)
    draft = Checkpoints(tmp_path).draft(50)
    role.save({"name": draft.name}, {})
    draft.write("agent", {})
    checkpoint = draft.commit({})
    assert checkpoint.read("replay")["train"]["committed"] == 50
    assert sum(path.stat().st_size for path in checkpoint.path.rglob("*")) < 50_000
    send(role, range(50, 80), 2)
    role = open_role()
    role.restore(Checkpoints(tmp_path))
    assert kept(role) == list(range(80)) and role.limiter.inserts == 80


def test_a_call_for_a_batch_that_is_repeated_gets_the_same_batch(open_role):
    role = open_role()
    for number in range(20):
        role.add_batch(make_batch([number, number]), {})

    def sample(number, received, learner="a"):
        meta = {"learner": learner, "number": number, "received": received}
        return role.sample_batch("train", None, meta).data["stepid"].tolist()

    batches = [sample(0, -1), sample(1, -1)]
    samples = role.counts()["samples"]
    assert [sample(0, -1), sample(1, -1)] == batches, "both answers may have been lost"
    assert role.counts()["samples"] == samples, "and each was counted once"
    assert sample(1, 0) == batches[1]
    assert role.counts()["samples"] == samples
    assert sample(1, 0, learner="b") != batches[1], "another learner starts anew"
    assert role.counts()["samples"] > samples


def test_a_reader_nearby_gets_references_and_others_get_rows(open_role):
    role = open_role()
    send(role, range(50), 1)
    reply = role.sample_batch("train", None, {"reader": NEAR})
    assert set(reply.data) == {"stepid", "is_first", "consec"} and reply.meta["paths"]
    for reader in (None, {**NEAR, "boot": "other"}, reader_place(), "nonsense"):
        reply = role.sample_batch("train", None, {"reader": reader} if reader else {})
        assert "n" in reply.data and "paths" not in reply.meta
    assert role.limiter.samples == 5 * 4
    assert role.stats()["reference_batches"] == 1


def test_a_stream_that_looks_at_rows_gets_rows(open_role):
    def scaled(replay, mode):
        for batch in make_stream(replay, mode):
            yield {**batch, "n": batch["n"] * 2}

    def sized(replay, mode):
        assert len(replay) > 0
        return make_stream(replay, mode)

    for stream in (scaled, sized):
        role = open_role(stream=stream)
        send(role, range(50), 1)
        for _ in range(2):
            reply = role.sample_batch("train", None, {"reader": NEAR})
            assert "n" in reply.data and "paths" not in reply.meta


class OtherReplay:
    """A replay that has no more than the contract asks for."""

    def __init__(self):
        store = Store(LENGTH, 1000)
        self.length, self.add, self.sample, self.update, self.stats = (
            LENGTH,
            store.add,
            store.sample,
            store.update,
            dict,
        )
        self._store = store

    def __len__(self):
        return len(self._store)


def test_a_replay_of_somebody_else_gets_rows(tmp_path):
    args = read_args(make_args(tmp_path, train_ratio=0.0))
    role = ReplayRole(OtherReplay(), OtherReplay(), make_stream, args)
    send(role, range(50), 1)
    send(role, range(50), 1)
    assert role.limiter.inserts == 50
    assert "n" in role.sample_batch("train", None, {"reader": NEAR}).data
    role.close()


class NearClient:
    """Calls a role in place, as a learner in another process on the machine."""

    def __init__(self, role):
        self.role, self.metas = role, []

    def call(self, method, data=None, *, meta, **_):
        self.metas.append(meta)
        if "reader" in meta:
            meta = {**meta, "reader": NEAR}
        reply = self.role.methods()[method](data, meta)
        return type("Done", (), {"meta": reply.meta, "result": lambda self, timeout: reply.data})()


def take(client, count, **options):
    counts = []
    batches = remote_batches(
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
    assert counts[-1]["samples"] == 20 * 4


def test_a_batch_that_is_gone_is_asked_for_again_and_counted_once(open_role, monkeypatch):
    role, client = open_role(), None
    send(role, range(50), 1)
    client = NearClient(role)
    resolve, misses = Resolver.resolve, [1, 3]

    def miss_some(self, batch, meta):
        misses[:] = [left - 1 for left in misses]
        if 0 in misses:
            meta = {**meta, "paths": {}}
            self._reader._segments.clear()
        return resolve(self, batch, meta)

    monkeypatch.setattr(Resolver, "resolve", miss_some)
    batches, _ = take(client, 5)
    assert len(batches) == 5
    assert [bool(meta.get("again")) for meta in client.metas] == [False, True, False, True, False, False, False]
    assert role.limiter.samples == 5 * 4


def test_where_nothing_can_be_mapped_rows_are_asked_for(open_role, monkeypatch, caplog):
    role = open_role()
    send(role, range(50), 1)
    client = NearClient(role)
    monkeypatch.setattr(Store, "paths", lambda self, ids: {"0": "/nowhere"})
    batches, _ = take(client, 5)
    assert len(batches) == 5 and "n" in batches[-1]
    assert ["reader" in meta for meta in client.metas] == [True] * MOST_MISSES + [False] * 5
    assert "rows are asked for instead" in caplog.text


def test_after_a_missing_chunk_its_sequels_are_left_out():
    resolver = Resolver()
    chunk = lambda consec: {"consec": np.full((2, 3), consec)}  # noqa: E731
    gone = {"stepid": np.zeros((2, 3, 20), np.uint8), "is_first": np.zeros((2, 3), bool), "consec": np.zeros((2, 3))}
    assert resolver.resolve(chunk(1), {}) is not None
    assert resolver.resolve(gone, {"paths": {}, "oldest": 0}) is None
    assert resolver.resolve(chunk(1), {}) is None
    assert resolver.resolve(chunk(2), {}) is None
    assert resolver.resolve(chunk(0), {}) is not None
    assert resolver.resolve(chunk(1), {}) is not None
