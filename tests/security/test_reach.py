"""Who can reach a run, what can be read of it, and what it gives away."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dreamfleet import rpc
from dreamfleet.errors import ConfigError
from dreamfleet.options import load_options
from dreamfleet.rpc.keys import load_key
from tests.fleet import DEADLINE_S

SMALL = ["--preset", "debug", "--agent", "dreamfleet.agent.random:RandomAgent", "--task", "dummy_vector"]


def test_by_default_nothing_is_on_the_network():
    run = load_options([], []).run
    assert {run.actor_addr, run.replay_addr, run.logger_addr} == {"ipc:{auto}"}
    addr = rpc.resolve_addr("ipc:{auto}", "auto")
    directory = Path(addr.removeprefix("ipc:")).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    rpc.remove_addr(addr)


@pytest.mark.parametrize("transport", ["auto", "zmq", "portal"])
def test_beyond_loopback_a_key_is_needed(transport, tmp_path):
    with pytest.raises(ConfigError, match="key_file"):
        rpc.make_server("0.0.0.0:45671", "server", transport=transport).start()
    rpc.make_key(tmp_path / "run.key")
    (tmp_path / "run.key").chmod(0o640)
    with pytest.raises(ConfigError, match="others can read it"):
        rpc.make_server("0.0.0.0:45671", "server", transport=transport, key_file=tmp_path / "run.key").start()


def test_loopback_needs_the_key_too_because_others_may_be_on_the_machine():
    with pytest.raises(ConfigError, match="key_file"):
        rpc.make_server("localhost:45671", "server").start()


@pytest.mark.distributed
@pytest.mark.parametrize("transport", ["auto", "zmq", "portal"])
def test_files_of_a_run_are_for_its_user_and_hold_no_secret(transport, tmp_path):
    """With the most careless umask; the roles talk over TCP, so that there is a key."""
    logdir = tmp_path / "run"
    addresses = [word for role in ("actor", "replay", "logger") for word in (f"--run.{role}_addr", "localhost:{auto}")]
    command = [sys.executable, "-m", "dreamfleet", "train", *SMALL, *addresses, "--run.transport", transport]
    command += ["--run.train_ratio", "2", "--steps", "200", "--logdir", str(logdir), "--run.save_every", "1"]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, umask=0, cwd=tmp_path, check=False
    )
    assert result.returncode == 0, result.stderr
    paths = [logdir, *logdir.rglob("*")]
    assert len(paths) > 20
    assert not [path for path in paths if path.stat().st_mode & stat.S_IWOTH], "others may write"
    keepers = ("run.key", "join.json")  # which exist to hold it
    assert [stat.S_IMODE((logdir / name).stat().st_mode) for name in keepers] == [0o600, 0o600]
    key = load_key(logdir / "run.key", "localhost:1")
    secrets = [key.secret, key.token().encode()]
    texts = {path: path.read_bytes() for path in paths if path.is_file() and path.name not in keepers}
    texts[Path("output")] = (result.stdout + result.stderr).encode()
    assert not [path for path, text in texts.items() if any(secret in text for secret in secrets)]


def test_errors_about_keys_do_not_show_them(tmp_path):
    path = tmp_path / "run.key"
    rpc.make_key(path)
    public, secret = path.read_text().split()
    path.write_text(f"{secret}\n{public}\n")
    with pytest.raises(ConfigError) as caught:
        load_key(path, "localhost:1")
    assert secret not in str(caught.value) and public not in str(caught.value)


def test_a_key_is_never_made_where_others_could_have_put_theirs(tmp_path):
    path = tmp_path / "run.key"
    path.symlink_to(tmp_path / "elsewhere")
    rpc.make_key(path)
    assert not (tmp_path / "elsewhere").exists()
    assert os.path.lexists(path)
