"""Exceptions are shown with the frames of the user's code."""

import json

import pytest

from dreamfleet.base.tracebacks import MOST_FRAMES, own_frames
from dreamfleet.envs import make_env
from dreamfleet.errors import EnvError


def frames_of(call, *args) -> str:
    with pytest.raises(Exception) as caught:
        call(*args)
    return own_frames(caught.value)


def fail(seed: int):
    return json.loads("{")


def descend(depth: int) -> None:
    assert depth
    descend(depth - 1)


def exit_for_good(seed: int):
    raise SystemExit


def test_frames_of_this_package_and_of_the_interpreter_are_left_out():
    text = frames_of(make_env, fail)
    assert 'test_tracebacks.py", line' in text and "in fail" in text
    assert "dreamfleet/envs" not in text and "json/decoder.py" not in text


def test_the_innermost_frames_are_shown():
    text = frames_of(descend, 50)
    assert text.count("in descend") == MOST_FRAMES and "assert depth" in text


def test_the_cause_is_shown_where_the_error_is_ours():
    assert "in exit_for_good" in frames_of(make_env, exit_for_good)


def test_errors_of_ours_have_no_frames_and_other_bugs_the_last_one():
    error = EnvError("all is said")
    assert own_frames(error) == ""
    lone = frames_of(json.loads, None)
    assert "test_tracebacks.py" in lone or lone.count("File") == 1


def test_a_syntax_error_is_shown_where_it_is(tmp_path, monkeypatch):
    (tmp_path / "unfinished_env.py").write_text("import json\n\ndef make(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = frames_of(make_env, "unfinished_env:make")
    assert 'unfinished_env.py", line 3' in text and "def make(:" in text and "frozen" not in text
