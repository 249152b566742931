"""The files of an exported policy."""

import json

import pytest

from dreamfleet.agent.contract import PolicyProgram
from dreamfleet.errors import ConfigError
from dreamfleet.results.artefact import write_artefact


def test_an_export_is_replaced_and_nothing_else_is_left(tmp_path):
    program = PolicyProgram(b"program", {}, {}, [], 0, ("cpu",))
    for name in ("mine", "mine.zip"):
        write_artefact(tmp_path / name, program, {}, {}, {"step": 1})
        write_artefact(tmp_path / name, program, {}, {}, {"step": 2})
    assert json.loads((tmp_path / "mine" / "policy.json").read_text())["step"] == 2
    with pytest.raises(ConfigError, match="cannot be written"):
        write_artefact(tmp_path / "mine" / "policy.json" / "below", program, {}, {}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "mine.zip"], "nothing is left behind"
