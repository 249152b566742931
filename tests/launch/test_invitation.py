"""The file with which others join a run: complete, for its user alone, refused with a reason where it does not fit."""

import dataclasses
import json
import socket
import stat

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
    assert joined.logdir == load_options().logdir and not joined.run.key_file


def test_a_server_listens_where_the_run_looks_for_it(invitation):
    assert invitation.make_options("replay").run.replay_addr == "0.0.0.0:5001"
    assert invitation.make_options("envs").run.replay_addr == "other:5001"


def test_it_travels_as_a_file_or_as_a_line(tmp_path, invitation, capsys):
    path = tmp_path / FILE
    invitation.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = read_invitation(str(path))
    assert found == read_invitation(str(tmp_path)) and found.make_options("envs") == invitation.make_options("envs")
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


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"{", b"abc", b"\xff\xfe\x00", b'{"package": 1}'])
def test_what_is_no_invitation_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match="does not say how to join a run; copy"):
        read_invitation(str(tmp_path / "file"))


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
    started = []
    monkeypatch.setattr("dreamfleet.launch.run.run_role", lambda *call: started.append(call) or Outcome(COMPLETE))
    invitation.write(tmp_path / FILE)
    assert main(["join", str(tmp_path / FILE), "--envs", "3", "--logdir", str(tmp_path / "there")]) == 0
    ((kind, joined),) = started
    assert kind == "envs" and joined.run.envs == 3
    key = tmp_path / "there" / "joined" / "run.key"
    assert joined.run.key_file == str(key) and key.read_text() == invitation.key
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


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
