import pytest

from dreamfleet.metrics import Sections


def test_shares_of_the_time_since_the_last_result():
    now = 0.0
    sections = Sections(lambda: now)
    now = 2.0
    sections.enter("step")
    now = 5.0
    sections.enter("act")
    now = 10.0
    assert sections.result() == pytest.approx({"time/step": 0.3, "time/act": 0.5}), "the rest was before the first"
    now = 14.0
    assert sections.result() == {"time/act": 1.0}, "it goes on"
    assert sections.result() == {}
