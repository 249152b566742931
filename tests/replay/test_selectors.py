"""Every rule of selection draws from the distribution that it says; changes of priority act at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dreamfleet.errors import ReplayError
from dreamfleet.options.replay import SamplingOptions
from dreamfleet.replay import Store
from dreamfleet.replay.gather import make_step_ids
from dreamfleet.replay.selectors import draw_ages, sliding_max
from dreamfleet.replay.sum_tree import SumTree
from tests.replay.stores import BLOCK_ROWS, fill, make_row, open_store, stack

DRAWS = 40_000


def check_distribution(drawn: np.ndarray, expected: np.ndarray) -> None:
    """Chi-square test of drawn indices against probabilities, which goes wrong once in 10,000 times."""
    expected = expected / expected.sum() * len(drawn)
    counts = np.bincount(drawn, minlength=len(expected))
    assert len(counts) == len(expected)
    assert not counts[expected == 0].any(), "something was drawn that has no chance"
    # Neighbours are taken together until at least 10 of them are expected.
    group = (np.cumsum(expected) / 10).astype(int)
    expected, counts = (np.bincount(group, values) for values in (expected, counts))
    expected, counts = expected[expected > 0], counts[expected > 0]
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    # Wilson and Hilferty: the cube root of chi-square over its degrees of freedom is nearly normal.
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom))
    assert abs(z) < 3.9, f"chi-square {statistic:.0f} with {freedom} degrees of freedom"


def test_the_check_itself_finds_a_wrong_distribution():
    rng, expected = np.random.default_rng(0), np.ones(100)
    check_distribution(rng.integers(0, 100, DRAWS), expected)
    with pytest.raises(AssertionError, match="chi-square"):
        check_distribution(rng.integers(0, 99, DRAWS), expected)
    with pytest.raises(AssertionError, match="chi-square"):
        check_distribution((100 * rng.random(DRAWS) ** 1.05).astype(int), expected)


def draw_starts(store, draws: int = DRAWS) -> np.ndarray:
    """The numbers of the first rows of sampled sequences."""
    return np.concatenate([store.sample(1000)["n"][:, 0] for _ in range(draws // 1000)])


def test_uniform_over_all_sequences():
    with open_store(length=8, capacity=300, seed=3) as store:
        fill(store, 100, worker=0)
        fill(store, 30, worker=1, start=200)
        fill(store, 7, worker=2, start=300)  # too short for a sequence
        expected = np.zeros(300)
        expected[:93] = expected[200:223] = 1
        assert len(store) == expected.sum()
        check_distribution(draw_starts(store), expected)


def test_uniform_after_eviction():
    with open_store(length=8, capacity=300) as store:
        fill(store, 2000)
        fill(store, 100, worker=1, start=2000)
        rows = store.stats()["steps"] - 100
        expected = np.zeros(2093)
        expected[2000 - rows : 1993] = expected[2000:] = 1
        check_distribution(draw_starts(store), expected)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_recency_by_age(exponent):
    with open_store(length=4, capacity=1000, sampling=SamplingOptions(0, 1, 0, recency_exponent=exponent)) as store:
        for n in range(0, 300, 3):  # three environments: age does not depend on the trajectory
            store.add_many(stack([make_row(n), make_row(n + 1), make_row(n + 2)]), [0, 1, 2])
        newest = 300 - 3 * 3
        ages = newest - 1 - np.arange(newest)
        edges = np.arange(1, newest + 2, dtype=np.float64)
        integral = np.log(edges) if exponent == 1 else edges ** (1 - exponent) / (1 - exponent)
        check_distribution(draw_starts(store), np.diff(integral)[ages])


def test_ages_stay_in_range():
    rng = np.random.default_rng(0)
    for items in (1, 2, 1000):
        for exponent in (0.0, 0.99, 1.0, 1.01, 3.0):
            ages = draw_ages(rng, items, exponent, 5000)
            assert ages.min() == 0 and ages.max() < items


def sequence_weights(priorities: np.ndarray, length: int, exponent: float, max_fraction: float) -> np.ndarray:
    """What the docstring of Priorities says, one sequence at a time."""
    windows = np.lib.stride_tricks.sliding_window_view(priorities.astype(np.float64) ** exponent, length)
    return max_fraction * windows.max(-1) + (1 - max_fraction) * windows.mean(-1)


def set_priorities(store, priorities: np.ndarray) -> None:
    """Gives row `n` the priority at index `n`, by the step ids of samples."""
    known = {}
    while len(known) < len(priorities):
        data = store.sample(200, "report")
        known.update(zip(data["n"].ravel().tolist(), data["stepid"].reshape(-1, 20), strict=True))
    ids = np.stack([known[n] for n in range(len(priorities))])
    store.update({"stepid": ids, "priority": priorities.astype(np.float32)})


@pytest.mark.parametrize("length", [1, 5, BLOCK_ROWS + 1, 2 * BLOCK_ROWS + 7])
@pytest.mark.parametrize(("exponent", "max_fraction"), [(1.0, 0.0), (0.5, 0.3), (2.0, 1.0)])
def test_priority_by_mean_and_maximum(length, exponent, max_fraction):
    options = {"priority_exponent": exponent, "priority_max": max_fraction, "priority_zero": False}
    with open_store(length, 1000, sampling=SamplingOptions(0, 0, 1, **options)) as store:
        fill(store, 300)
        priorities = np.random.default_rng(1).exponential(size=300) * (np.arange(300) % 50 > 20)
        set_priorities(store, priorities)
        expected = sequence_weights(priorities, length, exponent, max_fraction)
        check_distribution(draw_starts(store), np.where(expected < 1e-12, 0, expected))


@pytest.mark.parametrize("changed", [[0], [BLOCK_ROWS], [BLOCK_ROWS + 3, 200], [299]])
def test_a_few_steps_change_the_weight_of_all_sequences_that_they_are_in(changed):
    options = {"priority_exponent": 1.0, "priority_max": 0.5, "priority_zero": False, "priority_initial": 1.0}
    with open_store(BLOCK_ROWS + 9, 1000, sampling=SamplingOptions(0, 0, 1, **options)) as store:
        fill(store, 300)
        data = store.sample(2000)  # all weights are known to the tree by then
        ids = dict(zip(data["n"].ravel().tolist(), data["stepid"].reshape(-1, 20), strict=True))
        store.update({"stepid": np.stack([ids[n] for n in changed]), "priority": np.full(len(changed), 50.0)})
        priorities = np.ones(300)
        priorities[changed] = 50.0
        check_distribution(draw_starts(store), sequence_weights(priorities, BLOCK_ROWS + 9, 1.0, 0.5))


def test_new_steps_have_the_initial_priority():
    selection = SamplingOptions(
        0, 0, 1, priority_exponent=0.5, priority_initial=4.0, priority_max=0.0, priority_zero=False
    )
    with open_store(length=1, capacity=1000, sampling=selection) as store:
        fill(store, 100)
        set_priorities(store, np.ones(100))
        fill(store, 100, start=100)
        check_distribution(draw_starts(store), np.repeat([1.0, 2.0], 100))


def test_steps_without_a_priority_come_before_all_others_each_once():
    """The default, an infinite priority: the sequences that hold such a step, one after the other."""
    with open_store(length=4, capacity=1000, sampling=SamplingOptions(0, 0, 1)) as store:
        fill(store, 100)
        assert set(store.sample(200)["n"].ravel().tolist()) == set(range(100)), "more than there are, so that all come"
        data = store.sample(1)  # nothing is new any more
        store.update({"stepid": data["stepid"], "priority": np.full((1, 4), 1e30, np.float32)})
        fill(store, 8, start=100)
        starts = []
        while not set(range(100, 108)) <= {row for start in starts for row in range(start, start + 4)}:
            starts.append(int(store.sample(1)["n"][0, 0]))
            assert starts[-1] > 96, "an old sequence came before all new steps were seen"
        assert len(starts) <= 8, "a sequence was drawn again though all of its steps had been"
        known = int(data["n"][0, 0])
        assert store.sample(50)["n"][0, 0] in range(known - 3, known + 4), "then it is the highest priority"


def test_a_report_takes_new_sequences_first_and_leaves_them_new():
    with open_store(length=1, capacity=1000, sampling=SamplingOptions(0, 0, 1)) as store:
        fill(store, 60)
        set_priorities(store, np.ones(60))
        fill(store, 2, start=60)
        for _ in range(20):
            numbers = store.sample(10, "report")["n"][:, 0]
            assert (numbers >= 60).sum() == 2, "as many as there are new ones"
        assert sorted(store.sample(2)["n"][:, 0].tolist()) == [60, 61]


def test_infinite_priorities_survive_eviction_and_updates_of_neighbours():
    with open_store(length=5, capacity=256, sampling=SamplingOptions(0, 0, 1, priority_zero=False)) as store:
        fill(store, 1500)
        kept = store.stats()["steps"]
        check_distribution(draw_starts(store) - (1500 - kept), np.ones(kept - 4))
        newest = store._rows.items[np.array([len(store) - 1])]
        serials, rows = store._rows.locate(store._rows.blocks.sequences(newest))
        ids = make_step_ids(store._state.store_id, serials, rows)
        store.update({"stepid": ids, "priority": np.ones((1, 5), np.float32)})
        starts = {int(n) for _ in range(200) for n in store.sample(20)["n"][:, 0]}
        assert max(starts) == 1494, "all steps of the newest sequence have a priority, and not all of the one before"


def test_priorities_after_eviction():
    selection = SamplingOptions(
        0, 0, 1, priority_exponent=1.0, priority_initial=1.0, priority_max=0.5, priority_zero=False
    )
    with open_store(length=5, capacity=256, sampling=selection) as store:
        fill(store, 200)
        set_priorities(store, np.full(200, 9.0))
        fill(store, 1500, start=200)
        kept = store.stats()["steps"]
        starts = draw_starts(store)
        assert starts.min() >= 1700 - kept
        check_distribution(starts - (1700 - kept), np.ones(kept - 4))


def test_a_sampled_sequence_gets_priority_0_and_is_drawn_again_only_when_all_are():
    with open_store(length=1, capacity=1000, sampling=SamplingOptions(0, 0, 1, priority_zero=True)) as store:
        fill(store, 60)
        store.sample(50, "report")  # only training counts
        seen = [int(store.sample(1)["n"][0, 0]) for _ in range(60)]
        assert sorted(seen) == list(range(60))
        check_distribution(draw_starts(store, 6000), np.ones(60))


def test_mixture_by_fractions():
    selection = SamplingOptions(2, 1, 1, priority_exponent=1.0, priority_max=0.0, priority_zero=False)
    with open_store(length=1, capacity=1000, sampling=selection) as store:
        fill(store, 200)
        priorities = (np.arange(200) < 50).astype(float)
        set_priorities(store, priorities)
        recency = np.diff(np.log(np.arange(1, 202)))[::-1]
        parts = [np.ones(200), recency, priorities]
        expected = sum(share * part / part.sum() for share, part in zip((0.5, 0.25, 0.25), parts, strict=True))
        check_distribution(draw_starts(store), expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_impossible_priorities_are_refused(bad):
    with open_store(length=1, capacity=1000, sampling=SamplingOptions(0, 0, 1, priority_zero=False)) as store:
        fill(store, 10)
        data = store.sample(1)
        with pytest.raises(ReplayError, match="negative or not finite"):
            store.update({"stepid": data["stepid"], "priority": np.full((1, 1), bad, np.float32)})
        assert len(set(draw_starts(store, 1000).tolist())) == 10


@pytest.mark.parametrize("weights", [(0, 0, 0), (1, -1, 1), (float("nan"), 1, 1)])
def test_impossible_weights_are_refused(weights):
    with pytest.raises(ReplayError, match=r"weights .* of uniform, recency, priority"):
        Store(4, 1000, sampling=SamplingOptions(*weights))


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(2, 6),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 1000)), max_size=30),
    st.integers(0, 1000),
)
def test_tree_beside_plain_weights(groups, width, changes, seed):
    tree, weights = SumTree(groups, width), np.zeros((groups, width))
    rng = np.random.default_rng(seed)
    for group, scale in changes:
        chosen = np.unique(np.minimum([group, group // 2], groups - 1))
        weights[chosen] = rng.random((len(chosen), width)) * scale * (rng.random((len(chosen), width)) > 0.4)
        tree.set(chosen, weights[chosen])
    np.testing.assert_array_equal(tree.weights, weights)
    assert tree.total == pytest.approx(weights.sum())
    if weights.sum() > 0:
        fractions = np.concatenate([rng.random(100), [0.0, np.nextafter(1.0, 0)]])
        found = tree.find(fractions)
        assert (weights.ravel()[found] > 0).all()
        ends = np.cumsum(weights.ravel())
        inside = (fractions * ends[-1] <= ends[found] * (1 + 1e-9)) & (
            fractions * ends[-1] >= (ends[found] - weights.ravel()[found]) * (1 - 1e-9)
        )
        assert inside.all()


@given(hnp.arrays(np.float64, (3, 50), elements=st.floats(0, 10)), st.integers(1, 50))
def test_sliding_max_beside_windows(values, width):
    expected = np.lib.stride_tricks.sliding_window_view(values, width, 1).max(-1)
    np.testing.assert_array_equal(sliding_max(values, width), expected)
