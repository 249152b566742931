"""What is drawn of a series: extremes stay, and smoothing does not depend on how much of it is drawn."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamfleet.dashboard.series import View, extremes, make_line, reduce_line, running_mean
from dreamfleet.metrics.reading import Points


def make_points(values, steps=None) -> Points:
    values = np.asarray(values, float)
    steps = np.arange(len(values)) if steps is None else np.asarray(steps)
    return Points(np.arange(len(values)), steps, steps.astype(float), values)


def decode(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f8")


def to_steps(points: Points) -> np.ndarray:
    return points.step.astype(float)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(1, 20))
def test_the_extremes_of_every_interval_stay(values, buckets):
    xs, ys = np.arange(len(values), dtype=float), np.array(values)
    keep = extremes(xs, ys, buckets)
    kept_xs, kept = xs[keep], ys[keep]
    assert kept.min() == ys.min() and kept.max() == ys.max()
    assert kept_xs[0] == xs[0] and kept_xs[-1] == xs[-1] and (np.diff(kept_xs) > 0).all()
    assert len(kept) <= max(2 * buckets + 2, 2)


def test_a_single_peak_among_ten_million_points_is_seen():
    ys = np.zeros(10_000_000)
    ys[7_654_321] = 5.0
    ys[1_234_567] = -3.0
    line = make_line(make_points(ys), to_steps, 1)
    drawn = reduce_line(line, View(points=800))
    assert decode(drawn["y"]).max() == 5.0 and decode(drawn["y"]).min() == -3.0
    assert len(decode(drawn["x"])) <= 802 and drawn["total"] == len(ys)


def test_points_of_one_step_are_one_interval():
    keep = extremes(np.full(100, 3.0), np.arange(100.0), 10)
    assert set(np.arange(100)[keep]) == {0, 99}


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.integers(1, 70))
def test_the_running_mean(values, window):
    expected = [np.mean(values[max(0, i - window + 1) : i + 1]) for i in range(len(values))]
    np.testing.assert_allclose(running_mean(np.array(values), window), expected, atol=1e-8)


def test_smoothing_is_of_all_points_however_few_are_drawn():
    line = make_line(make_points(np.random.default_rng(0).normal(size=10_000)), to_steps, 50)
    drawn = reduce_line(line, View(window=50, points=40))
    xs, ys = decode(drawn["sx"]).astype(int), decode(drawn["sy"])
    np.testing.assert_array_equal(ys, line.smooth[xs])


def test_values_that_are_not_finite_are_left_out_and_steps_are_put_in_order():
    line = make_line(make_points([1, np.nan, 3, np.inf, 2], [0, 1, 4, 5, 2]), to_steps, 1)
    np.testing.assert_array_equal(line.xs, [0, 2, 4])
    np.testing.assert_array_equal(line.ys, [1, 2, 3])


@pytest.mark.parametrize(("start", "end", "expected"), [(3, 6, [2, 3, 4, 5, 6, 7]), (-9, 1, [0, 1, 2]), (20, 30, [9])])
def test_a_range_has_one_point_more_at_each_side(start, end, expected):
    line = make_line(make_points(np.arange(10)), to_steps, 1)
    np.testing.assert_array_equal(decode(reduce_line(line, View(start=start, end=end))["x"]), expected)
