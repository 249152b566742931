"""Threads of a role: what one dies of stops the process and is kept as its cause."""

import re
from pathlib import Path

import pytest

import dreamfleet
from dreamfleet import lifecycle

PACKAGE = Path(dreamfleet.__file__).parent


@pytest.fixture(autouse=True)
def fresh(failing_role):
    lifecycle.reset()


def die(error: BaseException) -> None:
    raise error


def test_a_thread_that_dies_fails_the_role():
    error = ValueError("in the thread")
    lifecycle.spawn(die, error, name="worker").join()
    assert lifecycle.wait_stop(60)
    assert lifecycle.failure() is error
    with pytest.raises(ValueError, match="in the thread"):
        lifecycle.raise_failure()


def test_the_first_failure_counts_and_is_told_once():
    heard = []
    lifecycle.on_failure(heard.append)
    errors = [ValueError("first"), KeyError("second")]
    for error in errors:
        lifecycle.spawn(die, error, name="worker").join()
    assert heard == errors[:1]
    assert lifecycle.failure() is errors[0]


# What starts threads of its own: this mechanism, the role that is a thread itself, and what is no role.
OTHERS = {
    *("lifecycle.py", "launch/supervise/process.py", "launch/background.py", "launch/ray/relay.py"),
    "dashboard/companion.py",
}


def test_every_thread_of_a_role_is_started_by_the_lifecycle():
    starts = re.compile(r"\bThread\(target")
    found = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if starts.search(p.read_text())}
    assert found == OTHERS
