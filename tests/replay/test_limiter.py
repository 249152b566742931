"""The samples-per-insert law, step by step and under real threads."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamfleet import lifecycle
from dreamfleet.replay import Limiter
from tests.fleet import DEADLINE_S

PATIENCE_S = DEADLINE_S


class Store:
    """Counts what many environments have inserted, as a replay would."""

    def __init__(self, num_envs: int, length: int):
        self._rows = [0] * num_envs
        self._length = length
        self._next = 0

    def __len__(self) -> int:
        return sum(max(0, rows - self._length + 1) for rows in self._rows)

    def insert(self, count: int) -> None:
        for _ in range(count):
            self._rows[self._next % len(self._rows)] += 1
            self._next += 1

    def forget(self) -> None:
        self._rows = [0] * len(self._rows)


def make_limiter(store, train_ratio=32.0, batch_size=4, batch_length=8, length=9, **kwargs) -> Limiter:
    return Limiter(
        lambda: len(store),
        train_ratio=train_ratio,
        batch_size=batch_size,
        batch_length=batch_length,
        length=length,
        **kwargs,
    )


OPERATIONS = st.one_of(
    st.tuples(st.just("insert"), st.integers(1, 60)),
    st.tuples(st.just("sample"), st.integers(1, 60)),
    st.tuples(st.just("restart"), st.integers(0, 3000)),
    st.tuples(st.just("forget"), st.just(0)),
)


@settings(max_examples=150)
@given(
    train_ratio=st.one_of(st.floats(0.01, 2000), st.just(0.0)),
    batch_size=st.integers(1, 16),
    batch_length=st.integers(1, 32),
    context=st.integers(0, 2),
    consec=st.integers(1, 3),
    num_envs=st.integers(1, 60),
    rows=st.integers(1, 60),
    tolerance=st.one_of(st.none(), st.floats(0, 100)),
    min_size=st.one_of(st.none(), st.integers(0, 500)),
    operations=st.lists(OPERATIONS, max_size=40),
)
def test_one_side_may_always_go_on_and_the_difference_stays_within_the_law(
    train_ratio, batch_size, batch_length, context, consec, num_envs, rows, tolerance, min_size, operations
):
    length = consec * batch_length + context
    store = Store(num_envs, length)
    limiter = make_limiter(store, train_ratio, batch_size, batch_length, length, tolerance=tolerance, min_size=min_size)
    tol = 4 * batch_size if tolerance is None else tolerance
    minimum = batch_size * length if min_size is None else min_size
    per_insert = train_ratio / batch_length
    highest = max(tol * per_insert, 2 * batch_size) + per_insert * rows

    def difference():
        return per_insert * max(0, limiter.inserts - minimum) - limiter.samples

    for operation, times in operations:
        if operation == "restart":
            limiter.set_samples(times)
        if operation == "forget":
            store.forget()
        for _ in range(times):
            assert limiter.may_insert() or limiter.may_sample(batch_size)
            if operation == "insert" and limiter.may_insert():
                was_free = len(store) < batch_size or train_ratio <= 0
                store.insert(rows)
                limiter.inserted(rows)
                assert was_free or difference() <= highest + 1e-6
            if operation == "sample" and limiter.may_sample(batch_size):
                assert len(store) >= batch_size
                limiter.sampled(batch_size)
                assert train_ratio <= 0 or limiter.inserts >= minimum
                assert train_ratio <= 0 or difference() >= -tol - 1e-6


@settings(max_examples=10)
@given(
    train_ratio=st.sampled_from([0.5, 4.0, 64.0]),
    num_envs=st.sampled_from([1, 7, 40]),
    eagerness=st.lists(st.booleans(), min_size=1, max_size=30),
)
def test_ratio_holds_over_a_long_run_whoever_is_faster(train_ratio, num_envs, eagerness):
    store = Store(num_envs, 9)
    limiter = make_limiter(store, train_ratio)
    turn = 0
    while limiter.inserts < 2000 or limiter.may_sample(4):
        wants_insert = eagerness[turn % len(eagerness)] and limiter.inserts < 2000
        turn += 1
        if (wants_insert and limiter.may_insert()) or not limiter.may_sample(4):
            assert limiter.may_insert()
            store.insert(1)
            limiter.inserted(1)
        else:
            limiter.sampled(4)
    ratio = limiter.samples * 8 / limiter.inserts
    # Off by the tolerance of 16 sequences, and by what is inserted before the first sample.
    assert ratio == pytest.approx(train_ratio, rel=0.1, abs=16 * 8 / 2000)


def test_many_environments_that_hold_less_than_a_sequence_may_insert():
    store = Store(num_envs=1000, length=9)
    limiter = make_limiter(store)
    while len(store) < 4:
        assert limiter.may_insert()
        assert not limiter.may_sample(4)
        store.insert(100)
        limiter.inserted(100)
    assert limiter.inserts > 8000
    assert limiter.may_sample(4)


@pytest.mark.parametrize("train_ratio", [0.0, -1.0])
def test_without_a_ratio_neither_side_waits(train_ratio):
    store = Store(num_envs=1, length=9)
    limiter = make_limiter(store, train_ratio)
    assert not limiter.may_sample(4)  # nothing is there to be sampled
    store.insert(12)
    limiter.inserted(12)
    assert limiter.may_sample(4)
    limiter.sampled(10**6)
    assert limiter.may_sample(4)
    limiter.inserted(10**9)
    assert limiter.may_insert()


def test_too_many_inserts_stop_inserts_and_samples_free_them():
    store = Store(num_envs=1, length=9)
    limiter = make_limiter(store)  # 4 samples an insert, minimum 36, bounds -16 and 64
    store.insert(51)
    limiter.inserted(51)
    assert limiter.may_insert()
    store.insert(1)
    limiter.inserted(1)
    assert not limiter.may_insert()
    limiter.sampled(1)
    assert limiter.may_insert()
    limiter.sampled(63 + 12)
    assert limiter.may_sample(4)
    limiter.sampled(4)
    assert not limiter.may_sample(4)


def test_counts_continue_from_what_they_were():
    store = Store(num_envs=1, length=9)
    store.insert(20)
    limiter = make_limiter(store, inserts=1036, samples=4000)
    assert (limiter.inserts, limiter.samples) == (1036, 4000)
    assert limiter.may_insert()
    limiter.set_samples(3000)
    assert not limiter.may_insert()
    limiter.set_samples(4020)
    assert not limiter.may_sample(4)


@pytest.mark.parametrize(("num_inserters", "num_samplers"), [(1, 1), (4, 1), (1, 4), (5, 3)])
def test_blocking_threads_reach_their_targets(num_inserters, num_samplers):
    rows = [0] * num_inserters
    limiter = Limiter(
        lambda: sum(max(0, count - 8) for count in rows), train_ratio=32, batch_size=4, batch_length=8, length=9
    )
    per_inserter, total = 600, 600 * num_inserters
    target = 4 * (total - 36)
    sampled_lock = threading.Lock()
    errors = []

    def insert(index):
        for _ in range(per_inserter):
            limiter.wait_insert()
            rows[index] += 1
            limiter.inserted(1)

    def sample():
        while True:
            with sampled_lock:  # one at a time, so that they do not overshoot the target together
                if limiter.samples >= target:
                    return
                limiter.wait_sample(4)
                limiter.sampled(4)

    def guarded(fn, *args):
        try:
            fn(*args)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=guarded, args=(insert, i), daemon=True) for i in range(num_inserters)]
    threads += [threading.Thread(target=guarded, args=(sample,), daemon=True) for _ in range(num_samplers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    is_stuck = [thread.is_alive() for thread in threads]
    limiter.close()
    assert not any(is_stuck) and not errors
    assert limiter.inserts == total
    assert target <= limiter.samples < target + 4


class Waiter:
    """A thread in `wait_sample`; `is_waiting` is set while it holds the lock that a change has to take."""

    def __init__(self, **kwargs):
        self.items = 0
        self.is_waiting = threading.Event()
        self.waits = []
        self.result = None
        self.limiter = Limiter(
            self._num_items, train_ratio=32, batch_size=4, batch_length=8, length=9, inserts=36, **kwargs
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.is_waiting.wait(PATIENCE_S)

    def join(self):
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return self.result

    def _num_items(self) -> int:
        self.waits += [wait["what"] for wait in lifecycle.waits()]
        self.is_waiting.set()
        return self.items

    def _run(self):
        self.result = self.limiter.wait_sample(4)


def test_an_insert_wakes_a_sampler():
    waiter = Waiter()
    waiter.items = 4
    waiter.limiter.inserted(1)
    assert waiter.join() is True


def test_a_restarted_learner_wakes_a_sampler():
    waiter = Waiter(samples=1000)
    waiter.items = 4
    waiter.limiter.set_samples(0)
    assert waiter.join() is True


def test_close_wakes_a_sampler_and_later_ones_do_not_wait():
    waiter = Waiter()
    waiter.limiter.close()
    assert waiter.join() is False
    assert waiter.limiter.wait_sample(4) is False


def test_a_wait_is_declared():
    waiter = Waiter()
    waiter.limiter.close()
    waiter.join()
    assert any("environments" in what for what in waiter.waits)
    assert not any("environments" in wait["what"] for wait in lifecycle.waits())


def test_a_learner_that_claims_too_much_does_not_stop_the_training():
    limiter = Limiter(lambda: 1000, train_ratio=8.0, batch_size=4, batch_length=8, length=9, inserts=1000, samples=900)
    limiter.set_samples(2**40)
    assert limiter.samples < 1000
    limiter.inserted(20)
    assert limiter.may_sample(4)
    limiter.set_samples(500)
    assert limiter.samples == 500, "less is the word of a learner that went back to a checkpoint"


def test_waits_end_at_their_timeout():
    store = Store(num_envs=1, length=9)
    limiter = make_limiter(store)
    assert limiter.wait_sample(4, timeout_s=0.01) is False
    assert limiter.wait_insert(timeout_s=0.01) is True
    store.insert(200)
    limiter.inserted(200)
    assert limiter.wait_insert(timeout_s=0.0) is False
    assert limiter.wait_sample(4, timeout_s=0.0) is True
    assert limiter.wait_for(lambda: False, "nothing", timeout_s=0.01) is False


def test_a_run_that_has_all_its_steps_takes_no_more():
    limiter = Limiter(lambda: 0, train_ratio=0.0, batch_size=4, batch_length=8, length=9, steps=100)
    limiter.inserted(99)
    assert limiter.may_insert()
    limiter.inserted(5)  # the batch that crosses the line is taken whole
    assert not limiter.may_insert()
    assert not limiter.wait_insert(timeout_s=0.0)


def test_waits_of_either_side_are_measured():
    store = Store(1, 9)
    limiter = make_limiter(store)
    assert limiter.wait_insert(timeout_s=0) and not limiter.wait_sample(4, timeout_s=0.01)
    stats = limiter.stats()
    assert stats["sample_wait_s"] >= 0.01 and 0 < stats["sample_wait_share"] <= 1
    assert stats["sample_waits"] == stats["insert_waits"] == 0, "the one is not over, the other did not have to"
    store.insert(60)
    limiter.inserted(60)
    assert limiter.wait_sample(4, timeout_s=0)
    assert limiter.stats()["sample_waits"] == 1, "the wait that was given up has ended now"
    assert limiter.stats()["sample_waits"] == 0, "since the last time"
