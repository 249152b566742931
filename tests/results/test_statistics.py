"""Statistics of scores and their intervals."""

import numpy as np
import pytest

from dreamfleet.results.statistics import bootstrap, interquartile_mean, summarize


def test_values_of_known_scores():
    result = summarize([100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 60.0, -50.0])
    assert result["mean"].value == pytest.approx(125 / 8)
    assert result["median"].value == 3.5
    assert result["iqm"].value == 3.5, "two of eight are cut off at either end"
    assert all(estimate.low < estimate.value < estimate.high for estimate in result.values())


def test_interquartile_mean_of_few():
    assert interquartile_mean(np.array([1.0, 2.0, 9.0])) == 4.0
    assert interquartile_mean(np.array([7.0])) == 7.0


def test_a_constant_has_no_uncertainty():
    for estimate in summarize([7.0]).values():
        assert estimate == (7.0, 7.0, 7.0)


def test_the_interval_of_a_mean_is_the_one_of_the_normal_distribution():
    scores = np.random.default_rng(1).normal(10.0, 2.0, 400)
    estimate = bootstrap(scores, np.mean)
    half = 1.96 * scores.std() / 20
    assert estimate.low == pytest.approx(scores.mean() - half, abs=0.03)
    assert estimate.high == pytest.approx(scores.mean() + half, abs=0.03)
    assert estimate == bootstrap(scores, np.mean), "the same for the same scores"
