"""Every wait in the code is declared in one place, and found again by what was recorded of it."""

import ast
import re
from pathlib import Path

import pytest

import dreamfleet
from dreamfleet.base import waits

ROOT = Path(dreamfleet.__file__).parent
VALUES = {"peer": "logger", "method": "add", "act": "act_many", "mode": "train", "env_id": 12, "part": "replay"}
VALUES |= {"place": "/data/a run", "reason": "no space {left}\nin /data", "tracker": "wandb", "what": "another version"}

# What stands for the parts of a text that is put together where it is waited for.
STAND_INS = {"self.peer": "logger", "future.method": "add", "self._client.peer": "replay", "self._name": "actor"}
STAND_INS |= {"what": "room for transitions"}


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
            place = f"{path.relative_to(ROOT)}:{node.lineno}" if is_call else ""
            if is_call and (node.func.attr == "waiting" or ast.unparse(node.func).endswith("limit.begin")):
                yield place, node.args[0]
            elif is_call and node.func.attr in ("_wait", "wait_while") and isinstance(node.args[-1], ast.Constant):
                yield place, ast.Constant(f"replay: {node.args[-1].value}")  # of a channel, which adds its peer


def written_out(expression: ast.expr) -> str:
    """The text of a literal, with something in place of what is only known when it runs."""
    if isinstance(expression, ast.JoinedStr):
        return "".join(written_out(part) for part in expression.values)
    if isinstance(expression, ast.FormattedValue):
        return STAND_INS[ast.unparse(expression.value)]
    assert isinstance(expression, ast.Constant), ast.unparse(expression)
    return str(expression.value)


def test_every_wait_in_the_code_is_declared():
    found = list(waits_in_code())
    assert len(found) > 15
    literal = [(place, it) for place, it in found if isinstance(it, ast.JoinedStr | ast.Constant)]
    unknown = [place for place, text in literal if waits.find(written_out(text))[0] is waits.OTHER]
    assert not unknown, "declare these waits in dreamfleet/base/waits.py"
