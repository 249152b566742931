"""The store beside a model of plain lists: insert, evict, sample, update, kill and open again, in any order."""

import shutil
import tempfile

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dreamfleet.options.replay import SamplingOptions
from dreamfleet.replay import Store
from tests.replay.stores import BLOCK_ROWS, all_columns, stack

WORKERS = st.integers(0, 4)
SELECTIONS = (
    SamplingOptions(),
    SamplingOptions(1, 1, 0),
    SamplingOptions(0, 0, 1),
    SamplingOptions(1, 1, 1, priority_zero=False),
    SamplingOptions(0, 0, 1, priority_initial=1.0),
)


class StoreBesideLists(RuleBasedStateMachine):
    """Every row has a number of its own, `n`, by which the model knows its trajectory, place and contents."""

    directory = None

    @initialize(
        length=st.integers(1, 2 * BLOCK_ROWS + 3),
        spare=st.integers(0, 600),
        on_disk=st.booleans(),
        sampling=st.sampled_from(SELECTIONS),
        online=st.booleans(),
    )
    def create(self, length, spare, on_disk, sampling, online):
        self.directory = tempfile.mkdtemp() if on_disk else None
        self.options = {"sampling": sampling, "online": online, "sync_every": 0.0, "directory": self.directory}
        self.length, self.capacity = length, max(6 * BLOCK_ROWS, length) + spare
        self.store = Store(length, self.capacity, **self.options)
        self.rows = []  # by n
        self.trajectories = {}  # worker -> numbers of its rows, in order
        self.place = {}  # n -> (trajectory, position)
        self.ids = {}  # step id -> n, for ever
        self.sampled = []  # (step ids, numbers) handed out
        self.ignored = 0

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
        if self.directory:
            shutil.rmtree(self.directory)

    @rule(worker=WORKERS, count=st.integers(1, BLOCK_ROWS), is_restart=st.booleans(), is_end=st.booleans())
    def add_alone(self, worker, count, is_restart, is_end):
        for i in range(count):
            self.store.add(self.make_row(worker, is_restart and i == 0, is_end and i == count - 1), worker)

    @rule(
        workers=st.lists(WORKERS, min_size=1, max_size=12),
        times=st.integers(1, 30),
        restarts=st.sets(WORKERS),
        is_end=st.booleans(),
    )
    def add_together(self, workers, times, restarts, is_end):
        for i in range(times):
            rows = [self.make_row(w, w in restarts and i == 0, is_end and i == times - 1) for w in workers]
            self.store.add_many(stack(rows), workers)

    @precondition(lambda self: len(self.store) > 0)
    @rule(batch=st.integers(1, 6), mode=st.sampled_from(["train", "report"]))
    def sample(self, batch, mode):
        data = self.store.sample(batch, mode)
        assert data["n"].shape == (batch, self.length)
        present = self.present()
        for numbers, ids in zip(data["n"].tolist(), data["stepid"], strict=True):
            trajectory, start = self.place[numbers[0]]
            assert numbers == trajectory[start : start + len(numbers)]
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
    @rule(choice=st.integers(0, 10**6), mark=st.integers(1, 10**6), priority=st.floats(0, 10, width=32))
    def update(self, choice, mark, priority):
        ids, numbers = self.sampled[choice % len(self.sampled)]
        present = self.present()
        marks = mark + np.arange(numbers.size, dtype=np.int32).reshape(numbers.shape)
        self.store.update({"stepid": ids, "mark": marks, "priority": np.full(numbers.shape, priority, np.float32)})
        for n, value in zip(numbers.ravel().tolist(), marks.ravel(), strict=True):
            if n in present:
                self.rows[n]["mark"] = np.int32(value)
            else:
                self.ignored += 1

    @precondition(lambda self: self.directory)
    @rule(is_kill=st.booleans())
    def open_again(self, is_kill):
        before = all_columns(self.store)
        if is_kill and self.store._rows:
            self.store._closing.set()
            self.store._rows.pool._worker.shutdown()
            self.store._files.close()
        else:
            self.store.close()
        self.store = Store(self.length, self.capacity, **self.options)
        np.testing.assert_equal(all_columns(self.store), before)
        self.ignored = 0

    @invariant()
    def keeps_the_newest_rows_of_every_trajectory(self):
        if not hasattr(self, "store"):
            return
        columns = all_columns(self.store)
        present = set(columns["n"].tolist())
        starts = 0
        for trajectory in self.trajectories.values():
            kept = [n for n in trajectory if n in present]
            assert kept == trajectory[len(trajectory) - len(kept) :], (
                "a trajectory lost rows in the middle or at its end"
            )
            starts += max(0, len(kept) - self.length + 1)
        assert len(self.store) == starts
        for name, column in columns.items():
            np.testing.assert_array_equal(column, [self.rows[n][name] for n in columns["n"].tolist()], name)

    @invariant()
    def is_bounded_and_evicts_no_more_than_it_must(self):
        if not hasattr(self, "store") or not self.store._rows:
            return
        stats, segment_rows = self.store.stats(), self.store._rows.layout.rows
        assert stats["steps"] <= self.capacity + 2 * segment_rows
        assert stats["updates_ignored"] == self.ignored
        present = self.present()
        assert stats["steps"] == len(present)
        assert stats["trajectories"] == sum(
            any(n in present for n in trajectory) for trajectory in self.trajectories.values()
        )
        if stats["steps"] < len(self.rows):  # part of a block is unused in every trajectory
            assert stats["steps"] >= self.capacity - BLOCK_ROWS * len(self.trajectories)

    def present(self) -> set:
        return set(all_columns(self.store)["n"].tolist())

    def make_row(self, worker, is_first, is_last) -> dict:
        trajectory = self.trajectories.setdefault(worker, [])
        before = self.rows[trajectory[-1]] if trajectory else None
        is_first = is_first or before is None or bool(before["is_last"])
        n = len(self.rows)
        if before is not None and is_first:
            # The store marks what it still has; it cannot be asked for anything else.
            before["is_last"] = np.bool_(True)
        row = {
            "n": np.int64(n),
            "mark": np.int32(0),
            "vector": np.array([n, worker], np.float32),
            "is_first": np.bool_(is_first),
            "is_last": np.bool_(is_last),
        }
        self.rows.append(row)
        self.place[n] = (trajectory, len(trajectory))
        trajectory.append(n)
        return dict(row)


TestStoreBesideLists = StoreBesideLists.TestCase
TestStoreBesideLists.settings = settings(max_examples=40, stateful_step_count=15)
