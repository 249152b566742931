"""What `import dreamfleet` offers, that it is documented, and that it stays light."""

import importlib.metadata
import re
import subprocess
import sys

import pytest

import dreamfleet
from dreamfleet.cli import main
from tests.documented import DOCS
from tests.fleet import DEADLINE_S

HEAVY = ("jax", "gymnasium", "numpy", "elements", "zmq", "rich")


@pytest.mark.parametrize("name", dreamfleet.__all__)
def test_every_public_name_resolves(name):
    assert getattr(dreamfleet, name) is not None
    assert name in dir(dreamfleet)


def test_the_public_surface_is_the_documented_one():
    headings = re.findall(r"^##+ `dreamfleet\.(\w+)", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(dreamfleet.__all__)


@pytest.mark.parametrize("module", ["errors", "wrappers", "testing", "parallel"])
def test_every_class_and_function_of_public_modules_is_documented(module):
    page = (DOCS / "api.md").read_text()
    public = getattr(dreamfleet, module)
    own = [name for name, value in vars(public).items() if getattr(value, "__module__", "") == public.__name__]
    names = getattr(public, "__all__", [name for name in own if not name.startswith("_")])
    assert names and [name for name in names if not re.search(rf"`(\w+\.)*{name}\b", page)] == []


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        dreamfleet.trian  # noqa: B018


@pytest.mark.distributed
def test_import_is_light():
    code = f"import sys, dreamfleet; print(*(name for name in {HEAVY} if name in sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert result.stdout.split() == []


def test_version_is_that_of_the_installed_package(tmp_path, monkeypatch, capsys):
    metadata = tmp_path / "dreamfleet-7.8.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dreamfleet\nVersion: 7.8.9\n")
    (metadata / "INSTALLER").write_text("pip\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert dreamfleet.__version__ == "7.8.9"
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "dreamfleet 7.8.9\n"


def test_version_without_an_installed_package(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: [])
    assert dreamfleet.__version__ == "0+unknown"
