"""The replay role with stores: batches are taken once, whatever dies in between; references go to those near."""

from pathlib import Path

import numpy as np
import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import BadRequest, Closed, ReplayError
from dreamfleet.options import read_args
from dreamfleet.replay import Store
from dreamfleet.roles.hello import make_hello
from dreamfleet.roles.protocol import ReaderPlace, SampleInfo, SampleRequest, SaveRequest
from dreamfleet.roles.replay.counts import CountsFile
from dreamfleet.roles.replay.role import ReplayRole
from tests.fleet import make_args
from tests.roles.replays import HERE, LENGTH, NEAR, kept, make_batch, make_stream, send


def test_a_batch_that_is_sent_again_is_taken_once(open_role):
    role = open_role()
    assert send(role, range(10), 1).inserts == 10
    assert send(role, range(10), 1).inserts == 10
    assert send(role, range(10, 15), 2).inserts == 15
    assert send(role, range(10), 1).inserts == 15
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
    assert role.counts().steps == len(kept(role))
    if storage == "disk":
        assert send(role, range(10, 20), 2).inserts == 20
        assert kept(role) == list(range(20))
    assert send(role, range(20, 25), 3).inserts == 25


def test_a_kill_between_rows_and_counts_neither_loses_nor_doubles(open_role, monkeypatch):
    role = open_role()
    send(role, range(10), 1)
    monkeypatch.setattr(CountsFile, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        send(role, range(10, 20), 2)
    monkeypatch.undo()
    role = open_role()
    assert role.limiter.inserts == 20 and kept(role) == list(range(20))
    assert send(role, range(10, 20), 2).inserts == 20
    assert kept(role) == list(range(20))


def test_a_kill_between_the_two_replays_neither_loses_nor_doubles(open_role, monkeypatch):
    role = open_role()
    is_eval = np.arange(10) % 2 == 1
    monkeypatch.setattr(role._own["eval"].replay, "add_many", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
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
    assert send(role, range(10, 12), 1, actor="other").inserts == 12


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
    role.save(SaveRequest(draft.name).to_data(), {})
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
        request = SampleRequest(learner=learner, number=number, received=received)
        return role.sample_batch("train", None, request.to_meta()).data["stepid"].tolist()

    batches = [sample(0, -1), sample(1, -1)]
    samples = role.counts().samples
    assert [sample(0, -1), sample(1, -1)] == batches, "both answers may have been lost"
    assert role.counts().samples == samples, "and each was counted once"
    assert sample(1, 0) == batches[1]
    assert role.counts().samples == samples
    assert sample(1, 0, learner="b") != batches[1], "another learner starts anew"
    assert role.counts().samples > samples


def sample_for(role, reader):
    """A training batch as it is sent to a reader, and whether it is of references."""
    reply = role.sample_batch("train", None, SampleRequest(reader=reader).to_meta())
    return reply.data, SampleInfo.from_meta(reply.meta).references


def test_a_reader_nearby_gets_references_and_others_get_rows(open_role):
    role = open_role()
    send(role, range(50), 1)
    batch, references = sample_for(role, NEAR)
    assert set(batch) == {"stepid", "is_first", "consec"} and references.paths
    for reader in (None, ReaderPlace("other", NEAR.pid), HERE):
        batch, references = sample_for(role, reader)
        assert "n" in batch and references is None
    assert role.limiter.samples == 4 * 4
    assert role.stats()["reference_batches"] == 1


@pytest.mark.parametrize("reader", ["nonsense", {}, {"boot": "x"}, {"boot": "x", "pid": -1}, {"boot": 3, "pid": 1}])
def test_a_reader_that_is_none_is_refused_and_not_counted(open_role, reader):
    role = open_role()
    send(role, range(50), 1)
    with pytest.raises(BadRequest, match="ReaderPlace"):
        role.sample_batch("train", None, {"reader": reader})
    assert role.limiter.samples == 0


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
            batch, references = sample_for(role, NEAR)
            assert "n" in batch and references is None


@pytest.mark.parametrize("error", [KeyError, AttributeError, TypeError, ValueError])
@pytest.mark.parametrize("reader", [NEAR, None], ids=["references", "rows"])
def test_an_error_in_a_stream_is_its_own_and_references_are_not_given_up(open_role, error, reader):
    made = []

    def failing(replay, mode):
        made.append(type(replay).__name__)
        batches = make_stream(replay, mode)
        yield next(batches)
        if len(made) == 1:
            raise error("the stream's own mistake")
        yield from batches

    role = open_role(stream=failing)
    send(role, range(50), 1)
    first, _ = sample_for(role, reader)
    with pytest.raises(error, match="the stream's own mistake") as caught:
        sample_for(role, reader)
    assert caught.traceback[-1].path == Path(__file__), "the last frame is that of the stream"
    assert role.limiter.samples == 4, "a batch that nobody got is not counted"
    again, references = sample_for(role, reader)
    assert set(again) == set(first) and (references is not None) == (reader is not None)
    assert len(made) == 2 and len(set(made)) == 1, "the failed stream was not tried again as something else"


def test_a_stream_that_ends_is_named(open_role):
    role = open_role(stream=lambda replay, mode: iter([]))
    send(role, range(50), 1)
    with pytest.raises(ReplayError, match="stream of train batches ended; make_stream must return an endless iterator"):
        sample_for(role, None)


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
    batch, references = sample_for(role, NEAR)
    assert "n" in batch and references is None
    role.close()


def test_a_replay_saves_by_itself_where_no_trainer_of_ours_asks_for_it(open_role, tmp_path):
    role = open_role()
    role.save_alone()
    assert Checkpoints(tmp_path).latest() is None, "there is nothing yet"
    for count, names in ((10, 1), (0, 1), (5, 2)):
        send(role, range(count), 0, actor="") if count else None
        role.save_alone()
        assert len(list((tmp_path / "ckpt").glob("step-*"))) == names, "what is there is saved once"
    checkpoint = Checkpoints(tmp_path).latest("replay")
    assert checkpoint and checkpoint.step == checkpoint.manifest["counts"]["inserts"] == 15
    role.check_hello(make_hello(role._options, "learner"))
    send(role, range(3), 0, actor="")
    role.save_alone()
    assert len(list((tmp_path / "ckpt").glob("step-*"))) == 2, "who says hello asks"


def test_a_caller_without_metadata_is_given_a_batch_or_nothing(open_role):
    """An empty answer, which our learner understands, would end a portal program."""
    role = open_role()
    role.limiter.close()
    with pytest.raises(Closed, match="there is no batch"):
        role.sample_batch("train", None, {})
