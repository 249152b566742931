"""What a process says of its waits: those that come again and again are one, with the share of the time waited."""

from types import SimpleNamespace

import pytest

from dreamfleet import lifecycle


class Clock:
    now = 100.0

    def wait(self, what, seconds):
        with lifecycle.waiting(what):
            self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(lifecycle, "_past_waits", {})
    return clock


def show(clock, what, seconds=1.0):
    with lifecycle.waiting(what):
        clock.now += seconds
        return lifecycle.waits()


def test_one_wait_is_all_waited(clock):
    with lifecycle.waiting("replay: a batch"):
        assert lifecycle.waits() == [{"what": "replay: a batch", "seconds": 0.0, "share": 1.0}]
        clock.now += 3
        assert lifecycle.waits() == [{"what": "replay: a batch", "seconds": 3.0, "share": 1.0}]
        assert lifecycle.waits(older_than_s=3.5) == []
    assert lifecycle.waits() == []


def test_a_wait_that_begins_again_soon_goes_on_and_tells_its_share(clock):
    for _ in range(8):
        clock.wait("room", 0.1)
        clock.now += 0.3
    assert show(clock, "room", 0.8) == [{"what": "room", "seconds": 4.0, "share": 0.4}]


def test_another_wait_or_a_later_one_begins_anew(clock):
    clock.wait("room", 1.0)
    clock.now += 0.1
    assert show(clock, "action") == [{"what": "action", "seconds": 1.0, "share": 1.0}]
    clock.now += lifecycle.SAME_WAIT_S
    assert show(clock, "action", 2.0) == [{"what": "action", "seconds": 2.0, "share": 1.0}]


def test_the_outermost_wait_counts_and_the_longest_comes_first(clock):
    limit = lifecycle.Limit(0.0)
    try:
        with lifecycle.waiting("a batch"), lifecycle.waiting("a reply"):
            clock.now += 1
            limit.begin("environment 3: step")
            clock.now += 1
            assert [(wait["what"], wait["seconds"]) for wait in lifecycle.waits()] == [
                ("a batch", 2.0),
                ("environment 3: step", 1.0),
            ]
    finally:
        limit.end()
