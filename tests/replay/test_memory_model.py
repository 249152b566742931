"""MemoryReplay beside a store of plain lists, under any order of operations."""

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dreamfleet.replay import MemoryReplay
from dreamfleet.replay.memory import BLOCK_ROWS

WORKERS = st.integers(0, 4)
COUNTS = st.integers(1, 2 * BLOCK_ROWS)


class ReplayBesideLists(RuleBasedStateMachine):
    """Every row has a number of its own, `n`, by which the model knows its stream, place and contents."""

    @initialize(length=st.integers(1, BLOCK_ROWS + 6), spare=st.integers(0, 200))
    def create(self, length, spare):
        self.capacity = max(5 * BLOCK_ROWS, length) + spare
        self.replay = MemoryReplay(length, self.capacity, seed=1)
        self.rows = []  # by n
        self.streams = {}  # worker -> numbers of its rows, in order
        self.place = {}  # n -> (stream, position)
        self.closed = []
        self.ids = {}  # step id -> n, for ever
        self.sampled = []  # (step ids, numbers) handed out
        self.ignored = 0

    @rule(worker=WORKERS, count=COUNTS, is_restart=st.booleans(), is_end=st.booleans())
    def add_alone(self, worker, count, is_restart, is_end):
        for i in range(count):
            self.replay.add(self.make_row(worker, is_restart and i == 0, is_end and i == count - 1), worker)

    @rule(workers=st.sets(WORKERS, min_size=1), count=COUNTS, restarts=st.sets(WORKERS), is_end=st.booleans())
    def add_together(self, workers, count, restarts, is_end):
        workers = sorted(workers)
        for i in range(count):
            rows = [self.make_row(w, w in restarts and i == 0, is_end and i == count - 1) for w in workers]
            self.replay.add_many({k: np.stack([row[k] for row in rows]) for k in rows[0]}, workers)

    @precondition(lambda self: len(self.replay) > 0)
    @rule(batch=st.integers(1, 6), mode=st.sampled_from(["train", "report"]))
    def sample(self, batch, mode):
        data = self.replay.sample(batch, mode)
        assert data["n"].shape == (batch, self.replay.length)
        assert data["stepid"].shape == (batch, self.replay.length, 20) and data["stepid"].dtype == np.uint8
        present = self.present()
        for numbers, ids in zip(data["n"].tolist(), data["stepid"], strict=True):
            stream, start = self.place[numbers[0]]
            assert numbers == stream[start : start + len(numbers)]
            assert present.issuperset(numbers)
            assert all(self.ids.setdefault(bytes(step_id), n) == n for step_id, n in zip(ids, numbers, strict=True))
        assert len({*self.ids.values()}) == len(self.ids), "a row has two ids"
        expected = {k: np.array([[self.rows[n][k] for n in ns] for ns in data["n"].tolist()]) for k in self.rows[0]}
        expected["is_first"][:, 0] = True
        for key, value in expected.items():
            np.testing.assert_array_equal(data[key], value, key)
            assert data[key].dtype == value.dtype
        self.sampled.append((data["stepid"], data["n"]))

    @precondition(lambda self: self.sampled)
    @rule(choice=st.integers(0, 10**6), mark=st.integers(1, 10**6))
    def update(self, choice, mark):
        ids, numbers = self.sampled[choice % len(self.sampled)]
        present = self.present()
        marks = mark + np.arange(numbers.size, dtype=np.int32).reshape(numbers.shape)
        self.replay.update({"stepid": ids, "mark": marks, "priority": np.ones(numbers.shape, np.float32)})
        known = {bytes(x) for x in ids.reshape(-1, 20)} & self.ids.keys()
        for step_id, n, value in zip(ids.reshape(-1, 20), numbers.ravel().tolist(), marks.ravel(), strict=True):
            if bytes(step_id) in known and n in present:
                self.rows[n]["mark"] = np.int32(value)
            else:
                self.ignored += 1

    @rule()
    def save_and_load(self):
        saved = self.replay.save()
        before = self.present()
        self.replay = MemoryReplay(self.replay.length, self.capacity, seed=2)
        self.replay.load(saved)
        assert self.present() == before
        self.closed += self.streams.values()
        self.streams = {}
        self.ids = {}  # the rows are the same but their ids are new
        self.ignored = 0

    @invariant()
    def keeps_the_newest_rows_of_every_stream(self):
        if not hasattr(self, "replay"):
            return
        saved = [columns["n"].tolist() for columns in self.replay.save()["streams"]]
        for numbers in saved:
            stream, start = self.place[numbers[0]]
            assert numbers == stream[start:], "a stream lost rows in the middle or at its end"
        assert len(self.replay) == sum(max(0, len(numbers) - self.replay.length + 1) for numbers in saved)

    @invariant()
    def is_bounded_and_evicts_no_more_than_it_must(self):
        if not hasattr(self, "replay"):
            return
        stats = self.replay.stats()
        assert stats["steps"] < self.capacity + 2 * BLOCK_ROWS
        assert stats["items"] == len(self.replay)
        assert stats["updates_ignored"] == self.ignored
        if stats["steps"] < len(self.rows):  # part of a block is unused in every stream
            assert stats["steps"] > self.capacity - BLOCK_ROWS * (len(self.streams) + len(self.closed))

    def present(self) -> set:
        return {n for columns in self.replay.save()["streams"] for n in columns["n"].tolist()}

    def make_row(self, worker, is_first, is_last) -> dict:
        stream = self.streams.setdefault(worker, [])
        before = self.rows[stream[-1]] if stream else None
        is_first = is_first or before is None or bool(before["is_last"])
        if before is not None and is_first:
            before["is_last"] = np.bool_(True)
        n = len(self.rows)
        row = {
            "n": np.int64(n),
            "mark": np.int32(0),
            "vector": np.array([n, worker], np.float32),
            "is_first": np.bool_(is_first),
            "is_last": np.bool_(is_last),
        }
        self.rows.append(row)
        self.place[n] = (stream, len(stream))
        stream.append(n)
        return row


TestReplayBesideLists = ReplayBesideLists.TestCase
# Without shrinking, which would take minutes: fifteen steps can be read as they are.
TestReplayBesideLists.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, phases=[Phase.reuse, Phase.generate]
)
