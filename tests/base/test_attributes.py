"""Optional attributes of objects that others wrote."""

import pytest

from dreamfleet.base.attributes import find
from dreamfleet.testing import CountingEnv
from dreamfleet.testing.guests import GuestWrapper


class Failing:
    known = 1

    @property
    def wrong(self):
        raise ValueError("the cause")


def test_what_is_not_there_may_be_said_in_two_ways():
    wrapped = GuestWrapper(CountingEnv(3))
    assert find(Failing(), "known") == 1 and find(Failing(), "unknown") is None and find(Failing(), "unknown", 5) == 5
    assert find(wrapped, "num_envs") is None and find(wrapped, "__unknown__") is None
    assert find(wrapped, "obs_space") == wrapped.env.obs_space


def test_an_attribute_that_fails_is_not_taken_for_none():
    with pytest.raises(ValueError, match="the cause"):
        find(Failing(), "wrong")
