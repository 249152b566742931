"""The transition that comes of an observation and its answer, and what of it goes where."""

import numpy as np
import pytest

from dreamfleet.roles import transitions


def make_transition(env_ids=(5, 3, 9)) -> dict:
    rows = len(env_ids)
    obs = {
        "image": np.stack([np.full((4, 4, 3), env_id, np.uint8) for env_id in env_ids]),
        "log/speed": np.arange(rows, dtype=np.float32),
        "reward": np.ones(rows, np.float32),
        **{key: np.zeros(rows, bool) for key in ("is_first", "is_last", "is_terminal")},
    }
    acts = {"action": np.arange(rows), "reset": np.zeros(rows, bool)}
    outs = {"deter": np.zeros((rows, 8)), "stepid": np.zeros((rows, 20), np.uint8), "log/value": np.arange(rows)}
    return transitions.make_transition(list(env_ids), True, obs, acts, outs)


def test_a_transition_is_the_observation_and_the_answer_to_it():
    transition = make_transition()
    observed = {"image", "reward", "is_first", "is_last", "is_terminal", "log/speed"}
    assert transition.keys() == {"envid", "is_eval", "action", "deter", "log/value"} | observed
    assert transition["envid"].tolist() == [5, 3, 9] and transition["envid"].dtype == np.int64
    assert transition["is_eval"].tolist() == [True] * 3
    assert transition["image"][:, 0, 0, 0].tolist() == [5, 3, 9]


def test_replay_gets_no_log_keys():
    transition = make_transition()
    assert transitions.for_replay(transition).keys() == transition.keys() - {"log/speed", "log/value"}


def test_the_logger_gets_images_only_of_the_shown_environments_in_rows_of_their_own():
    shown, rest = transitions.split_shown(make_transition(), {3}, is_full=False)
    assert shown and rest
    assert shown["envid"].tolist() == [3] and rest["envid"].tolist() == [5, 9]
    assert shown["image"].shape == (1, 4, 4, 3) and (shown["image"] == 3).all()
    assert rest.keys() == shown.keys() - {"image"} and "log/speed" in rest
    assert shown["action"].tolist() == [1] and rest["action"].tolist() == [0, 2]


def test_a_part_for_the_logger_that_would_be_empty_is_none():
    transition = make_transition()
    shown, rest = transitions.split_shown(transition, {77}, is_full=False)
    assert shown is None and rest and rest.keys() == transition.keys() - {"image"}
    assert rest["envid"].tolist() == [5, 3, 9]
    shown, rest = transitions.split_shown(transition, {5, 3, 9}, is_full=False)
    assert rest is None and shown and shown.keys() == transition.keys()
    assert shown["envid"].tolist() == [5, 3, 9]
    assert transitions.split_shown(transition, set(), is_full=True) == (transition, None)


@pytest.mark.parametrize("is_full", [False, True])
def test_without_images_the_logger_gets_the_rows_in_one_part(is_full):
    transition = {k: v for k, v in make_transition().items() if k != "image"}
    assert transitions.split_shown(transition, {3}, is_full) == (None, transition)
