"""Nothing that comes over the wire or out of a file is ever run: by the source, and by files that try."""

import ast
import pickle
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dreamfleet
from dreamfleet.checkpoint import Checkpoint, Checkpoints
from dreamfleet.checkpoint.checkpoint import seal
from dreamfleet.errors import CheckpointError, ConfigError, ReplayError
from dreamfleet.options import check_resume, load_options
from dreamfleet.replay.episodes import read_episode

PACKAGE = Path(dreamfleet.__file__).parent
PICKLES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
# Launchers, which send calls to processes of their own; the role's side of that; and a reader of checkpoints of the
# reference that knows arrays and plain containers alone (tests/migration has files that try).
MAY_UNPICKLE = ("launch/", "roles/wiring.py", "migration/unpickling.py")
RUNS_CODE = {"eval", "exec", "compile", "__import__"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def test_only_what_a_parent_sent_to_its_own_child_is_unpickled():
    users = set()
    for name, tree in sources():
        for node in ast.walk(tree):
            is_named = isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PICKLES
            is_used = isinstance(node, ast.Attribute) and node.attr in ("load", "loads", "Unpickler")
            if is_named or (is_used and ast.unparse(node.value) in PICKLES):
                users.add(name)
    assert "launch/child.py" in users
    assert not [name for name in users if not name.startswith(MAY_UNPICKLE)]


def test_no_text_is_run_as_code_or_by_a_shell():
    found = []
    for name, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                uses_shell = any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords)
                if called in RUNS_CODE | SHELLS or uses_shell:
                    found.append(f"{name}:{node.lineno} {called}")
    assert not found


def test_arrays_and_texts_are_loaded_in_their_safe_forms():
    found = []
    for name, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                text = ast.unparse(node)
                if "allow_pickle=True" in text or (ast.unparse(node.func) == "YAML" and "unsafe" in text):
                    found.append(f"{name}:{node.lineno} {text}")
    assert not found


class Trap:
    """Sets a mark when it is unpickled."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


@pytest.fixture(autouse=True)
def never_sprung():
    yield
    assert not Trap.sprung, "something from a file was run"


def test_an_episode_with_an_object_in_it_is_refused(tmp_path):
    array = np.array([Trap()], object)
    np.savez(tmp_path / "episode.npz", reward=array)
    with pytest.raises(ReplayError, match="is not an NPZ file of arrays"):
        read_episode(tmp_path / "episode.npz")


def test_a_checkpoint_part_that_is_a_pickle_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    draft = checkpoints.draft(1)
    draft.write("agent", {"a": np.zeros(3)})
    checkpoint = draft.commit({})
    content = pickle.dumps(Trap())
    (checkpoint.path / "agent.bin").write_bytes(content)
    parts = {"agent": {"size": len(content), "crc32": zlib.crc32(content)}}
    (checkpoint.path / "manifest.json").write_bytes(seal({**checkpoint.manifest, "parts": parts}))
    with pytest.raises(CheckpointError, match="is damaged"):
        Checkpoint(checkpoint.path).read("agent")


@pytest.mark.parametrize("part", ["../secret", "/etc/passwd", "a/b", "", ".", "..", "a\0b", "x" * 200])
def test_a_manifest_cannot_name_files_elsewhere(tmp_path, part):
    (tmp_path / "secret.bin").write_bytes(b"secret")
    draft = Checkpoints(tmp_path).draft(1)
    checkpoint = draft.commit({})
    parts = {part: {"size": 6, "crc32": 0}}
    (checkpoint.path / "manifest.json").write_bytes(seal({**checkpoint.manifest, "parts": parts}))
    with pytest.raises(CheckpointError, match="cannot name a checkpoint part"):
        Checkpoint(checkpoint.path).read(part)


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "step-1", "step-000000000001-0001/..", None, 3, ["a"]])
def test_a_peer_cannot_name_drafts_elsewhere(tmp_path, name):
    for is_elsewhere in (False, True):
        with pytest.raises(CheckpointError, match="is not the name of a checkpoint"):
            Checkpoints(tmp_path / "run").add_part(name, "replay", {}, is_elsewhere)
    assert not list(tmp_path.rglob("*evil*"))


def test_an_archive_with_paths_in_it_writes_nothing(tmp_path):
    target = tmp_path / "in" / "episode.npz"
    target.parent.mkdir()
    with zipfile.ZipFile(target, "w") as archive:
        for name in ("../../evil.npy", "/tmp/evil_of_dreamfleet.npy", "reward.npy"):
            with archive.open(name, "w") as file:
                np.lib.format.write_array(file, np.zeros(3, np.float32))
    before = set(tmp_path.rglob("*"))
    read_episode(target)
    assert set(tmp_path.rglob("*")) == before
    assert not Path("/tmp/evil_of_dreamfleet.npy").exists()


def test_a_config_that_wants_to_make_objects_is_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("task: !!python/object/apply:os.system ['touch evil']\n")
    with pytest.raises(ConfigError):
        check_resume(load_options({"logdir": str(tmp_path)}))
    assert not Path("evil").exists()
