"""What a policy may return, and what is said of anything else."""

import elements
import numpy as np
import pytest

from dreamfleet.errors import AgentError
from dreamfleet.roles.actor.outputs import OutputChecker

ROWS = 4
SPACE = {
    "move": elements.Space(np.int32, (), 0, 5),
    "aim": elements.Space(np.float32, (2,)),
    "reset": elements.Space(bool),
}


def make_acts(**changes) -> dict:
    acts = {"move": np.zeros(ROWS, np.int32), "aim": np.zeros((ROWS, 2), np.float32), **changes}
    return {key: value for key, value in acts.items() if value is not None}


def make_outs(**changes) -> dict:
    return {"value": np.zeros(ROWS, np.float32), "log/entropy": np.zeros(ROWS, np.float32), **changes}


def check(checker: OutputChecker, acts: dict | None = None, outs: dict | None = None, mode: str = "train", rows=ROWS):
    return checker.check(mode, make_acts() if acts is None else acts, make_outs() if outs is None else outs, rows)


def test_what_keeps_the_contract_passes_again_and_again():
    checker = OutputChecker(SPACE)
    for _ in range(3):
        acts, outs = check(checker)
        assert acts.keys() == {"move", "aim"} and outs.keys() == {"value", "log/entropy"}


def test_lists_become_arrays_and_batches_may_differ_in_size():
    checker = OutputChecker()
    acts, _ = check(checker, {"move": [1, 2, 3, 4]}, {})
    assert acts["move"].tolist() == [1, 2, 3, 4]
    check(checker, {"move": [1, 2]}, {}, rows=2)


def test_modes_may_differ():
    checker = OutputChecker(SPACE)
    check(checker)
    check(checker, outs={}, mode="eval")


@pytest.mark.parametrize(
    ("acts", "message"),
    [
        ([1, 2], r"acts must be a dict of arrays; got list"),
        (make_acts(aim=None), r"acts has no \['aim'\], which the action space has"),
        (make_acts(aim=np.zeros((ROWS, 3), np.float32)), r"acts\['aim'\] has shape \(4, 3\), expected \(4, 2\)"),
        (make_acts(aim=np.full((ROWS, 2), np.nan, np.float32)), r"acts\['aim'\] has NaN or infinity"),
        (make_acts(move=np.int32(1)), r"acts\['move'\] has shape \(\), expected 4 rows"),
        (make_acts(move=np.zeros(3, np.int32)), r"acts\['move'\] has shape \(3,\), expected 4 rows"),
        (make_acts(move=np.array([None] * ROWS)), r"acts\['move'\] has dtype object, expected numbers"),
        (make_acts(move=[[1], [1, 2], [1], [1]]), r"acts\['move'\] cannot be made an array"),
    ],
)
def test_bad_actions_are_refused(acts, message):
    with pytest.raises(AgentError, match=message):
        check(OutputChecker(SPACE), acts)


@pytest.mark.parametrize(
    ("outs", "message"),
    [
        (None, r"outs must be a dict"),
        (make_outs(value=np.array(["a"] * ROWS)), r"outs\['value'\] has dtype <U1, expected numbers"),
        ({"log/entropy": np.array([{}] * ROWS)}, r"outs\['log/entropy'\] has dtype object"),
        (make_outs(value=np.float32(0)), r"outs\['value'\] has shape \(\), expected 4 rows"),
        ({"envid": np.zeros(ROWS)}, r"outs has the key 'envid'"),
        ({1: np.zeros(ROWS)}, r"outs has the key 1"),
    ],
)
def test_bad_outputs_are_refused(outs, message):
    with pytest.raises(AgentError, match=message):
        OutputChecker(SPACE).check("train", make_acts(), outs, ROWS)


@pytest.mark.parametrize(
    ("outs", "message"),
    [
        (
            make_outs(value=np.zeros(ROWS, np.float64)),
            r"outs\['value'\] is float64\(4,\), in the first call float32\(4,\)",
        ),
        (make_outs(value=np.zeros((ROWS, 2), np.float32)), r"outs\['value'\] is float32\(4, 2\), in the first call"),
        (make_outs(extra=np.zeros(ROWS)), r"outs\['extra'\] was not there in the first call"),
        ({"value": np.zeros(ROWS, np.float32)}, r"outs has no \['log/entropy'\], which it had"),
    ],
)
def test_outputs_that_change_are_refused(outs, message):
    checker = OutputChecker(SPACE)
    check(checker)
    with pytest.raises(AgentError, match=message):
        check(checker, outs=outs)
