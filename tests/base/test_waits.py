"""Every wait in the code is declared in one place, and found again by what was recorded of it."""

import ast
import re
from pathlib import Path

import pytest

import dreamfleet
from dreamfleet.base import waits

ROOT = Path(dreamfleet.__file__).parent
VALUES = {
    "missing": "1, 2",
    "peer": "logger",
    "method": "add",
    "act": "act_many",
    "mode": "train",
    "env_id": 12,
    "part": "replay",
}
VALUES |= {"place": "/data/a run", "reason": "no space {left}\nin /data", "tracker": "wandb", "what": "another version"}


@pytest.mark.parametrize("wait", waits.ALL, ids=lambda wait: wait.text)
def test_a_recorded_wait_is_found_again(wait):
    names = re.findall(r"{(\w+)}", wait.text)
    given = {name: str(VALUES[name]) for name in names}
    assert waits.find(wait(**given)) == (wait, given)


@pytest.mark.parametrize("wait", waits.ALL, ids=lambda wait: wait.text)
def test_what_is_shown_needs_only_what_was_recorded(wait):
    names = {*re.findall(r"{(\w+)}", wait.text), "who", "what", "time"}
    assert {*re.findall(r"{(\w+)}", wait.shown)} <= names
    assert wait.cause is None or waits.ALL.index(wait.cause) < waits.ALL.index(wait)
    assert {*re.findall(r"{(\w+)}", wait.bottleneck)} <= {"share"}


def waits_in_code():
    """Where a thread says what it waits for, as (place, expression)."""
    for path in sorted(ROOT.rglob("*.py")):
        if path.name == "lifecycle.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
            if is_call and (
                node.func.attr in ("waiting", "wait_while", "_wait") or ast.unparse(node.func).endswith("limit.begin")
            ):
                yield from ((f"{path.relative_to(ROOT)}:{node.lineno}", arg) for arg in node.args)


def test_every_wait_in_the_code_is_declared():
    found = list(waits_in_code())
    assert len(found) > 15
    written = [
        place for place, arg in found if isinstance(arg, ast.JoinedStr) or isinstance(getattr(arg, "value", 0), str)
    ]
    assert not written, "declare these waits in dreamfleet/base/waits.py, and use the declarations"
