"""The file with which others join a run: complete, for its user alone, refused with a reason where it does not fit."""

import base64
import dataclasses
import json
import socket
import stat
import tracemalloc
import zlib
from pathlib import Path

import pytest

import dreamfleet
from dreamfleet.cli import main
from dreamfleet.errors import ConfigError
from dreamfleet.launch.invitation import FILE, Invitation, describe_joining, read_invitation
from dreamfleet.launch.outcome import COMPLETE, Outcome
from dreamfleet.options import Options, load_options, read_args, role_options
from dreamfleet.rpc.keys import make_key
from tests.fleet import make_args

WORDS = ["--task", "gym_CartPole-v1", "--env.gym.repeat", "2", "--seed", "7", "--run.remote_envs", "True"]
ADDRESSES = {"actor": "0.0.0.0:5000", "replay": "other:5001", "logger": "10.0.0.7:5002"}


@pytest.fixture
def options(tmp_path) -> Options:
    make_key(tmp_path / "run.key")
    addresses = [word for role, addr in ADDRESSES.items() for word in (f"--run.{role}_addr", addr)]
    return load_options([*WORDS, *addresses, "--logdir", str(tmp_path)])


@pytest.fixture
def invitation(options) -> Invitation:
    return Invitation.make(options, role_options(options))


def test_it_says_all_that_a_worker_needs(invitation):
    joined = invitation.make_options("envs")
    assert (joined.task, joined.seed, joined.env.gym.repeat) == ("gym_CartPole-v1", 7, 2)
    assert joined.run.actor_addr == f"{socket.gethostname()}:5000", "as others reach it"
    assert joined.run.logger_addr == "10.0.0.7:5002"
    assert not joined.run.remote_envs and joined.run.envs > 0 and joined.run.eval_envs == 0
    assert Path(joined.logdir).parent == Path(load_options().logdir).parent and not joined.run.key_file


def test_a_server_listens_where_the_run_looks_for_it(invitation):
    assert invitation.make_options("replay").run.replay_addr == "0.0.0.0:5001"
    assert invitation.make_options("envs").run.replay_addr == "other:5001"


@pytest.mark.parametrize(
    ("seen", "bound"),
    [
        ("localhost:5001", "localhost:5001"),
        ("127.0.0.1:5001", "127.0.0.1:5001"),
        ("[::1]:5001", "[::1]:5001"),
        ("[fd00::7]:5001", "[::]:5001"),
        ("10.0.0.7:5001", "0.0.0.0:5001"),
    ],
)
def test_a_server_listens_no_further_than_the_run_looks(invitation, seen, bound):
    addresses = {**invitation.addresses, "replay": seen}
    assert dataclasses.replace(invitation, addresses=addresses).make_options("replay").run.replay_addr == bound


def make_elsewhere(invitation: Invitation, *roles: str) -> Invitation:
    """One of a run whose `roles` have unix sockets, on a machine that is not this one."""
    sockets = {role: f"ipc:/nowhere/dreamfleet-{role}/s" for role in roles}
    return dataclasses.replace(invitation, addresses={**invitation.addresses, **sockets})


def join(tmp_path, monkeypatch, invitation: Invitation, *words: str) -> tuple[int, list]:
    """The exit code of a command with a file, and the role that it would have run."""
    started = []
    monkeypatch.setattr("dreamfleet.launch.run.run_role", lambda *call: started.append(call) or Outcome(COMPLETE))
    invitation.write(tmp_path / FILE)
    return main(["join", str(tmp_path / FILE), "--envs", "3", "--logdir", str(tmp_path / "there"), *words]), started


def test_sockets_of_the_machine_of_the_run_do_not_keep_others_from_joining(tmp_path, invitation, monkeypatch):
    """As the address of the replay, unless the user names one."""
    code, ((_, joined),) = join(tmp_path, monkeypatch, make_elsewhere(invitation, "replay", "logger"))
    assert code == 0
    assert joined.run.actor_addr == invitation.addresses["actor"]
    assert joined.run.replay_addr == joined.run.logger_addr == "ipc:{auto}"


def test_a_policy_server_that_cannot_be_reached_is_named(tmp_path, invitation, monkeypatch, capsys):
    elsewhere = make_elsewhere(invitation, "actor")
    assert join(tmp_path, monkeypatch, elsewhere) == (2, [])
    error = capsys.readouterr().err
    assert "run.actor_addr='ipc:/nowhere/dreamfleet-actor/s' is a unix socket that is not on this machine" in error
    assert "start it with --run.actor_addr HOST:PORT" in error
    code, ((_, joined),) = join(tmp_path, monkeypatch, elsewhere, "--run.actor_addr", "localhost:5000")
    assert code == 0 and joined.run.actor_addr == "localhost:5000", "through a tunnel"


def test_sockets_of_this_machine_are_kept(tmp_path, invitation):
    here = {role: f"ipc:{tmp_path}/{role}" for role in ADDRESSES}
    joined = dataclasses.replace(invitation, addresses=here).make_options("envs")
    assert {role: joined.run.address(role) for role in ADDRESSES} == here


def test_it_travels_as_a_file_or_as_a_line(tmp_path, invitation, capsys):
    path = tmp_path / FILE
    invitation.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = read_invitation(str(path))
    assert found == read_invitation(str(tmp_path))
    theirs, ours = (dataclasses.replace(each.make_options("envs"), logdir="") for each in (found, invitation))
    assert theirs == ours
    assert main(["join", "--show", str(tmp_path)]) == 0
    line = capsys.readouterr().out
    assert len(line.split()) == 1 and invitation.key not in line
    (tmp_path / "line").write_text(line)
    assert read_invitation(str(tmp_path / "line")) == found


def test_a_line_is_not_a_word_of_a_command(invitation, capsys):
    assert main(["join", invitation.to_line()]) == 2
    error = capsys.readouterr().err
    assert "would be seen by everybody" in error
    assert invitation.to_line()[:40] not in error


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b"{", b"abc", b"\xff\xfe\x00", b'{"package": 1}', b'{"a":' * 100_000]
)
def test_what_is_no_invitation_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match="does not say how to join a run; copy"):
        read_invitation(str(tmp_path / "file"))


@pytest.mark.parametrize(
    "fields",
    [
        {"addresses": ["actor"]},
        {"addresses": {"actor": "localhost:5000"}},
        {"addresses": dict.fromkeys(ADDRESSES, 5000)},
        {"key": 1},
        {"options": "task"},
    ],
)
def test_fields_of_other_types_are_refused(tmp_path, invitation, fields):
    (tmp_path / FILE).write_text(json.dumps({**dataclasses.asdict(invitation), **fields}))
    with pytest.raises(ConfigError, match="does not say how to join a run; copy"):
        read_invitation(str(tmp_path))


def test_a_line_takes_no_more_memory_than_a_file_may(tmp_path):
    (tmp_path / "line").write_bytes(base64.urlsafe_b64encode(zlib.compress(b"{" + b" " * (1 << 28))))
    tracemalloc.start()
    with pytest.raises(ConfigError, match="does not say how to join a run; copy"):
        read_invitation(str(tmp_path / "line"))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 25


def test_others_who_can_read_the_file_are_warned_of(tmp_path, invitation, capsys):
    invitation.write(tmp_path / FILE)
    read_invitation(str(tmp_path))
    assert not capsys.readouterr().err
    (tmp_path / FILE).chmod(0o640)
    assert read_invitation(str(tmp_path)).key == invitation.key
    assert f"{FILE} has mode 640 and holds the key of the run" in capsys.readouterr().err


def test_a_directory_that_is_no_run_is_refused_as_that(tmp_path, capsys):
    assert main(["join", "--show", str(tmp_path)]) == 2
    assert f"is a directory without {FILE}" in capsys.readouterr().err


def test_another_version_is_refused_with_both(tmp_path, invitation):
    dataclasses.replace(invitation, package="0.0.1").write(tmp_path / FILE)
    with pytest.raises(ConfigError, match=f"is of dreamfleet 0.0.1, but this is {dreamfleet.__version__}"):
        read_invitation(str(tmp_path))


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_invitation(str(tmp_path / "nothing"))


def test_options_that_this_version_does_not_know_are_refused_by_name(tmp_path, invitation):
    values = dataclasses.asdict(invitation)
    values["options"]["run.no_such_option"] = 1
    (tmp_path / FILE).write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="no_such_option"):
        read_invitation(str(tmp_path)).make_options("envs")


def test_the_key_is_kept_for_its_user_alone(tmp_path, invitation, monkeypatch):
    _, ((kind, joined),) = join(tmp_path, monkeypatch, invitation)
    assert kind == "envs" and joined.run.envs == 3
    key = Path(joined.run.key_file)
    assert key.parent == tmp_path / "there" / "joined" and key.read_text() == invitation.key
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_two_runs_may_be_joined_with_one_log_directory(tmp_path, invitation, monkeypatch):
    """Each process of a role reads the key when it starts, also hours later."""
    make_key(tmp_path / "other.key")
    other = dataclasses.replace(invitation, key=(tmp_path / "other.key").read_text())
    _, ((_, joined),) = join(tmp_path, monkeypatch, invitation)
    _, ((_, later),) = join(tmp_path, monkeypatch, other)
    assert Path(joined.run.key_file).read_text() == invitation.key
    assert Path(later.run.key_file).read_text() == other.key
    assert join(tmp_path, monkeypatch, invitation)[1][0][1].run.key_file == joined.run.key_file


def test_a_log_directory_that_cannot_be_written_to_is_refused_in_one_line(tmp_path, invitation, monkeypatch, capsys):
    (tmp_path / "there").write_text("a file")
    assert join(tmp_path, monkeypatch, invitation) == (2, [])
    error = capsys.readouterr().err
    assert "cannot be written to" in error and error.count("\n") == 1


def describe(tmp_path, file=None, **options: object) -> list[str]:
    return list(describe_joining(read_args(make_args(tmp_path, **options)), file))


def test_a_run_that_starts_everything_itself_says_nothing(tmp_path):
    assert describe(tmp_path, tmp_path / FILE) == describe(tmp_path) == []


def test_a_trainer_says_how_to_join(tmp_path):
    lines = describe(tmp_path, tmp_path / FILE, remote_envs=True, remote_replay=True, replay_addr="other:6001")
    assert lines[:2] == ["to join: dreamfleet join join.json", "to join: dreamfleet join join.json --role replay"]
    assert str(tmp_path / FILE) in lines[2] and "mode 600" in lines[2]
    (line,) = describe(tmp_path, None, remote_envs=True)
    assert str(tmp_path / "run.key") in line
