"""How metrics are reduced between two reports."""

import math

import numpy as np
import pytest

from dreamfleet.metrics import Aggregator, Rate


def test_scalars_are_averaged():
    aggregator = Aggregator()
    for value in (1, 2.0, np.float32(3), np.asarray(6)):
        aggregator.add({"loss": value, "flag": value > 2})
    assert aggregator.result() == {"loss": 3.0, "flag": 0.5}


def test_the_end_of_a_key_chooses_the_reduction():
    aggregator = Aggregator()
    for value in (3, 1, 2):
        aggregator.add({"a/max": value, "a/min": value, "a/sum": value, "a/last": value, "max": value})
    assert aggregator.result() == {"a/max": 3, "a/min": 1, "a/sum": 6, "a/last": 2, "max": 2}


def test_arrays_text_and_others_keep_the_last():
    aggregator = Aggregator()
    aggregator.add({"image": np.zeros((2, 2)), "text": "1.0", "none": None, "one": np.zeros(1)})
    aggregator.add({"image": np.ones((2, 2)), "text": "2.0", "none": None, "one": np.ones(1)})
    result = aggregator.result()
    assert (result["image"] == 1).all() and result["one"].shape == (1,) and result["one"][0] == 1
    assert result["text"] == "2.0" and result["none"] is None


def test_what_is_not_reduced_by_key_is_averaged_and_arrays_are_joined():
    aggregator = Aggregator()
    for value in (1.0, 2.0, 6.0):
        numbers = dict.fromkeys(("a/max", "a/min", "a/sum", "a/last"), value)
        aggregator.add({**numbers, "vector": np.full(2, value), "text": str(value)}, by_key=False)
    assert len(aggregator) == 6
    result = aggregator.result()
    assert result.pop("vector").tolist() == [1, 1, 2, 2, 6, 6] and result.pop("text") == "6.0"
    assert set(result.values()) == {3.0} and not aggregator.result()


def test_of_arrays_that_cannot_be_joined_the_last_is_kept():
    aggregator = Aggregator()
    for array in (np.zeros((2, 3)), np.ones((2, 4)), np.full((1, 4), 2.0)):
        aggregator.add({"image": array}, by_key=False)
    assert aggregator.result()["image"].tolist() == [[1] * 4, [1] * 4, [2] * 4]


def test_prefix():
    aggregator = Aggregator()
    aggregator.add({"loss": 1}, prefix="train")
    assert aggregator.result() == {"train/loss": 1}


def test_reset():
    aggregator = Aggregator()
    aggregator.add({"loss": 1, "text": "a", "n/sum": 5})
    assert aggregator.result(reset=False) == {"loss": 1, "text": "a", "n/sum": 5}
    aggregator.add({"loss": 3, "n/sum": 1})
    assert aggregator.result() == {"loss": 2, "text": "a", "n/sum": 6}
    assert aggregator.result() == {}


@pytest.mark.parametrize("values", [(math.nan, 1.0, 2.0), (1.0, math.nan, 2.0), (1.0, 2.0, math.nan)])
def test_a_nan_is_never_hidden(values):
    aggregator = Aggregator()
    for value in values:
        aggregator.add(dict.fromkeys(("mean", "a/max", "a/min", "a/sum"), value))
    assert all(math.isnan(value) for value in aggregator.result().values())


def test_rate():
    times = iter([10.0, 12.0, 12.0, 16.0])
    rate = Rate(clock=lambda: next(times))
    rate.step(6)
    rate.step()
    assert rate.result() == 3.5
    rate.step(5)
    assert rate.result() == 0.0  # no time has passed
    rate.step(8)
    assert rate.result() == 2.0
