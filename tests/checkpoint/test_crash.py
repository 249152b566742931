"""A process killed at any point of saving leaves the checkpoint before, or the finished one, and nothing in between."""

import subprocess
import sys
from pathlib import Path

import pytest

from dreamfleet.checkpoint import Checkpoints


@pytest.mark.distributed
def test_kill_at_every_file_operation(tmp_path, caplog):
    script = Path(__file__).with_name("crashing_saver.py")
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=120)
    found = []
    for logdir in sorted(tmp_path.iterdir()):
        checkpoint = Checkpoints(logdir).latest()
        assert checkpoint, logdir
        assert checkpoint.manifest["updates"] == checkpoint.step
        assert (checkpoint.read("agent")["params"] == checkpoint.step).all()
        assert checkpoint.read("replay") == {"step": checkpoint.step}
        found.append(checkpoint.step)
        for path in (logdir / "ckpt").glob("step-*"):
            Checkpoints.load(path)  # nothing in sight is half there, or half removed

        # The next run starts over what was left, and leaves nothing of it behind.
        draft = Checkpoints(logdir, keep=1).draft(3)
        draft.write("agent", 3)
        last = draft.commit({})
        assert [path.name for path in (logdir / "ckpt").iterdir()] == [last.name], logdir
    # Kills before the rename, kills after it, and no way back.
    assert found == sorted(found)
    assert found.count(1) > 8 and found.count(2) > 2, found
    assert not caplog.records
