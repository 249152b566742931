"""How to install an extra where this package came from."""

import importlib.metadata
import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from dreamfleet.base import extras


class Installed:
    def __init__(self, origin: dict | None):
        self._origin = origin

    def read_text(self, name: str) -> str | None:
        origin = json.dumps(self._origin) if self._origin else None
        return {"direct_url.json": origin, "INSTALLER": "pip"}[name]


class Built:
    """What a build leaves behind in a clone."""

    def read_text(self, name: str) -> None:
        return None


@pytest.fixture
def command(monkeypatch):
    """The command for the extra `plot` of an installation with this origin."""

    def make(origin: dict | None) -> str:
        found = {"dreamfleet": [Built(), Installed(origin)]}
        monkeypatch.setattr(importlib.metadata, "distributions", lambda name: found.get(name, []))
        monkeypatch.setattr(extras, "pip", lambda: "pip")
        return extras.install_command.__wrapped__("plot")

    return make


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, "pip install 'dreamfleet[plot]'"),
        (
            {"url": "file:///home/me/clone", "dir_info": {"editable": True}},
            "pip install --editable '/home/me/clone[plot]'",
        ),
        ({"url": "file:///home/me/clone", "dir_info": {}}, "pip install 'dreamfleet[plot] @ file:///home/me/clone'"),
        ({"url": "file:///a.whl", "archive_info": {}}, "pip install 'dreamfleet[plot] @ file:///a.whl'"),
        (
            {"url": "https://host/repo", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'dreamfleet[plot] @ git+https://host/repo@abc'",
        ),
    ],
)
def test_the_command_follows_the_origin_of_the_installation(command, origin, expected):
    assert command(origin) == expected


def test_without_an_installation_the_name_is_given(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: [])
    assert extras.install_command.__wrapped__("plot").endswith("pip install 'dreamfleet[plot]'")


def test_pip_is_that_of_this_python(monkeypatch):
    own = Path(sys.executable).absolute().parent / "pip"
    monkeypatch.setattr(shutil, "which", lambda name: str(own) if name == "pip" else None)
    assert extras.pip() == "pip"
    monkeypatch.setattr(shutil, "which", lambda name: "/somewhere/else/pip" if name == "pip" else None)
    assert shlex.split(extras.pip()) == [sys.executable, "-m", "pip"]
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/uv" if name == "uv" else None)
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    assert extras.pip() == "uv pip"
