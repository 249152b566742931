"""Warnings and errors are told once in the terminal; what comes again is counted, over all workers."""

import pytest

from dreamfleet.launch.digest import FIRST_S, MOST_KINDS, LogDigest


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def lines():
    return []


@pytest.fixture
def digest(lines, now):
    return LogDigest(lambda text: lines.extend(text.splitlines()), lambda: now[0])


def test_an_error_is_told_once_with_its_details_and_then_counted(digest, lines, now):
    for number in range(5):
        digest.add(
            f"env{number}", "error", f"environment {number} raised: ValueError: {number}\n  File mine.py, line 3"
        )
    assert lines == ["[env0] environment 0 raised: ValueError: 0", "  File mine.py, line 3"]
    lines.clear()
    digest.tell_repeats()
    assert lines == []
    now[0] += FIRST_S
    digest.tell_repeats()
    digest.tell_repeats()
    assert lines == ["[env1 and 3 more] environment 0 raised: ValueError: 0 (4 more times)"]


def test_repeats_are_told_less_and_less_often_and_all_at_the_end(digest, lines, now):
    for _ in range(1000):
        digest.add("env0", "warning", "starting new episodes")
        now[0] += 1
        digest.tell_repeats()
    assert len(lines) < 10
    digest.close()
    assert sum(int(line.split("(")[1].split()[0]) for line in lines[1:]) == 999


def test_what_comes_again_after_a_while_is_told_at_once(digest, lines, now):
    digest.add("env0", "warning", "killed by SIGKILL: restarting")
    now[0] += 100
    digest.add("env0", "warning", "killed by SIGKILL: restarting")
    assert lines[1:] == ["[env0] killed by SIGKILL: restarting (once more)"]


def test_other_roles_other_texts_and_news_are_told(digest, lines):
    for _ in range(2):
        digest.add("env0", "warning", "killed by SIGKILL: restarting")
        digest.add("agent", "warning", "killed by SIGKILL: restarting")
        digest.add("agent", "info", "saved step-1")
    assert lines.count("[agent] saved step-1") == 2 and len(lines) == 4


def test_details_that_were_told_are_not_repeated_under_another_heading(digest, lines):
    digest.add("env0", "error", "environment 0 raised: ValueError\n  File mine.py, line 3")
    digest.add("env0", "warning", "ValueError: restarting\n  File mine.py, line 3")
    assert lines.count("  File mine.py, line 3") == 1 and len(lines) == 3


def test_what_is_remembered_is_bounded(digest):
    for number in range(3 * MOST_KINDS):
        digest.add("env0", "warning", "x" * number)
    assert len(digest._told) <= MOST_KINDS
