"""`embodied` is ours only where the reference is not installed; with both in one environment it is theirs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dreamfleet

ROOT = Path(dreamfleet.__file__).parent.parent
SHOW = "import embodied, dreamfleet.parallel; from embodied.{0} import {1}; print({1}.__module__, embodied.__version__)"
HOOK = """
import sys, importlib.util
class Hook:  # as an editable installation has one
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, sys.argv[1]) if name == "embodied" else None
sys.meta_path.append(Hook())
"""


@pytest.fixture
def site(tmp_path):
    """A folder for packages in which only ours is installed."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(ROOT / "embodied.py", site)
    (site / "dreamfleet").symlink_to(ROOT / "dreamfleet")
    return site


def install_reference(folder: Path) -> Path:
    """Puts a package named as the reference's there; returns its file."""
    core = folder / "embodied" / "core"
    core.mkdir(parents=True)
    (core / "__init__.py").write_text("class Theirs: pass\n")
    (core.parent / "__init__.py").write_text("__version__ = 'theirs'\nfrom .core import *\n")
    return core.parent / "__init__.py"


def run(code: str, *args: object, path: list[Path]) -> str:
    """What Python prints with these folders and our dependencies on its path, without hooks of installed packages."""
    path += [Path(entry) for entry in sys.path if entry.endswith("site-packages")]
    env = {"PYTHONPATH": ":".join(map(str, path))}
    done = subprocess.run([sys.executable, "-S", "-c", code, *map(str, args)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_is_ours_where_nobody_else_has_it(site):
    code = (
        "import embodied; from embodied.run.parallel import combined; print(combined is embodied.run.parallel.combined)"
    )
    assert run(code, path=[site]) == "True"


def test_environments_and_agents_may_be_derived_from_its_classes(site):
    code = (
        "import embodied\n"
        "class Mine(embodied.Env):\n    obs_space = act_space = step = {}\n"
        "class Plays(embodied.Agent):\n    pass\n"
        "from dreamfleet.envs.contract import is_env\n"
        "print(is_env(Mine()), Plays({}, {}, None) is not None, hasattr(embodied, '__version__'))"
    )
    assert run(code, path=[site]) == "True True False"


def test_what_only_the_reference_has_is_said_to_be_its_part(site):
    code = "import embodied\ntry:\n    embodied.wrappers\nexcept AttributeError as error:\n    print(error)"
    assert run(code, path=[site]).startswith("embodied.wrappers is a part of danijar/dreamerv3, which is not installed")


def test_theirs_is_found_in_the_same_folder(site):
    install_reference(site)
    assert run(SHOW.format("core", "Theirs"), path=[site]) == "embodied.core theirs"


def test_theirs_is_found_later_on_the_path(site, tmp_path):
    install_reference(tmp_path / "later")
    assert run(SHOW.format("core", "Theirs"), path=[site, tmp_path / "later"]) == "embodied.core theirs"


def test_theirs_is_found_by_an_import_hook(site, tmp_path):
    file = install_reference(tmp_path / "checkout")
    assert run(HOOK + SHOW.format("core", "Theirs"), file, path=[site]) == "embodied.core theirs"


def test_two_copies_of_ours_do_not_take_each_other_for_theirs(site, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(site, other, symlinks=True)
    assert run("import embodied; print(embodied.run.__name__)", path=[site, other]) == "embodied.run"
