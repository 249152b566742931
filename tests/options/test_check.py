"""Options that cannot work are refused before anything starts."""

import importlib.util
import os

import pytest

from dreamfleet.errors import ConfigError
from dreamfleet.launch.modules import check_modules
from dreamfleet.options import Options, check_options, check_role, load_options, place_replica
from dreamfleet.options.fields import find_options

DECLARED = find_options(Options)
LIMITED = [key for key, field in DECLARED.items() if field.kind in (int, float) and field.rule.range()]
CHOICES = [key for key, field in DECLARED.items() if field.choices]

GANG = {"run.replicas": 2, "run.gang": "localhost:6400"}


@pytest.fixture
def refusal(tmp_path):
    def check(overrides: dict) -> str:
        with pytest.raises(ConfigError) as caught:
            check_options(load_options({"logdir": str(tmp_path), **overrides}))
        message = str(caught.value)
        assert "; " in message and "\n" not in message
        return message

    return check


def test_defaults_pass(tmp_path):
    check_options(load_options({"logdir": str(tmp_path)}))


@pytest.mark.parametrize(
    "overrides",
    [
        {"run.train_ratio": -1},
        {"run.train_ratio": 0},
        {"run.actor_batch": 1000},
        {"run.actor_batch": -1},
        {"run.report_every": 0, "run.save_every": 0, "run.max_restarts": 0, "replay_context": 0},
        {"run.envs": 0, "run.remote_envs": True, "run.actor_addr": "localhost:{auto}"},
        {"run.mode": "serial"},
        {"run.transport": "portal"},
        {"run.remote_replay": True, "run.replay_addr": "far.example:5000"},
        {"replay.capacity": 16 * 65, "run.envs": 8},
        {"report_length": 64},
        {"consec_train": 2, "report_length": 128},
        {"task": "package.module:make"},
        {"run.replicas": 2, "run.replica": 1, "run.gang": "far.example:6400"},
        {"run.replicas": 2, "run.launcher": "ray"},
    ],
)
def test_odd_but_possible(overrides, tmp_path):
    check_options(load_options({"logdir": str(tmp_path), **overrides}))


@pytest.mark.parametrize(
    "overrides",
    [
        {"run.envs": 0, "run.eval_envs": 1, "run.steps": 1000},
        {"replay.mix": "/only/where/the/replay/is"},
        {"run.replicas": 2, "run.gang": "", "run.replica": 1},
    ],
)
def test_what_concerns_the_whole_run_does_not_keep_environments_from_joining(overrides, tmp_path):
    check_role(load_options({"logdir": str(tmp_path), **overrides}), "envs", ())


def test_somebody_who_joins_without_environments_is_refused(tmp_path):
    options = load_options({"logdir": str(tmp_path), "run.envs": 0, "run.eval_envs": 0})
    with pytest.raises(ConfigError, match="leaves no environment to join with; give at least 1"):
        check_role(options, "envs", ())
    check_role(options, "logger", ("logger",))


@pytest.mark.parametrize("key", LIMITED)
def test_numbers_out_of_range(key, refusal):
    rule = DECLARED[key].rule
    low = rule.above if rule.above is not None else None if rule.at_least is None else rule.at_least - 1
    outside = [low, None if rule.at_most is None else rule.at_most + 1, rule.multiple_of and rule.at_least + 1]
    for number in (number for number in outside if number is not None):
        message = refusal({key: number})
        assert message.startswith(f"{key}={DECLARED[key].kind(number)!r} must be {rule.range()}; the default is ")


@pytest.mark.parametrize("key", CHOICES)
def test_choices(key, refusal):
    choices = DECLARED[key].choices
    message = refusal({key: "qqq"})
    assert message == f"{key}='qqq' is unknown; choose from {', '.join(choices)}"
    assert f"did you mean {choices[0]}?" in refusal({key: choices[0] + "x"})


def test_every_number_is_limited_or_free():
    free = {"run.train_ratio", "run.actor_batch", "env.dmc.camera"}
    numbers = {key for key, field in DECLARED.items() if field.kind in (int, float)}
    assert numbers == {*LIMITED, *free}


def test_every_choice_that_used_to_fail_late_is_refused():
    known = {"dreamer.size", "jax.sharding", "jax.precision", "dreamer.return_norm", "run.transport", "logger.outputs"}
    assert known <= set(CHOICES)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            {"replay.capacity": 500},
            "replay.capacity=500 is below batch_size*length=16*65=1040; raise one or lower the other",
        ),
        ({"replay.capacity": 2063, "consec_train": 2}, "replay.capacity=2063 is below batch_size*length=16*129=2064"),
        (
            {"batch_length": 16},
            "report_length=32 needs consec_report*report_length=32 steps, but sequences have "
            "consec_train*batch_length=16; lower report_length to at most 16 or raise batch_length",
        ),
        ({"consec_report": 3}, "consec_report*report_length=96"),
        ({"batch_length": 2, "report_length": 1, "consec_report": 3}, "lower consec_report"),
        ({"agent": "RandomAgent"}, "agent='RandomAgent' is not of the form module:attr; write"),
        ({"agent": "a..b:C"}, "agent='a..b:C' is not of the form"),
        ({"agent": "a:b:C"}, "agent='a:b:C' is not of the form"),
        ({"task": "pack-age:make"}, "task='pack-age:make' is not of the form module:attr"),
        ({"run.envs": 0}, "run.envs=0 leaves nothing to train on; give at least 1, or set run.remote_envs"),
        ({"run.envs": -1, "run.remote_envs": True}, "run.envs=-1 must be at least 0"),
        ({"replay.mix": "/nowhere"}, "replay.mix='/nowhere' is not a directory; name a log directory"),
        (
            {"replay.mix": "/tmp", "replay.mix_share": 0.95},
            "replay.mix_share=0.95 leaves less than one sequence of a batch of 16 for fresh steps; lower it",
        ),
        (
            {"run.remote_envs": True, "run.actor_addr": "ipc:/tmp/a"},
            "run.actor_addr='ipc:/tmp/a' is a unix socket, which environments elsewhere cannot reach",
        ),
        ({"run.mode": "serial", "run.remote_envs": True}, "run.remote_envs=True cannot work with run.mode='serial'"),
        (
            {"run.portal_plain_handshake": True},
            "run.portal_plain_handshake=True concerns the portal library, but run.transport is auto; set it to False",
        ),
        (
            {"run.mode": "serial", "run.remote_replay": True, "run.replay_addr": "far:1"},
            "run.remote_replay=True cannot work with run.mode='serial'",
        ),
        (
            {"run.remote_replay": True},
            "run.replay_addr='ipc:{auto}' must be a fixed host:port with",
        ),
        (
            {"run.replicas": 2},
            "run.gang='' is not the host:port where the learners of run.replicas=2 meet; name that of replica 0",
        ),
        ({**GANG, "run.gang": "ipc:{auto}"}, "run.gang='ipc:{auto}' is not the host:port where"),
        ({**GANG, "run.gang": "here:there"}, "run.gang='here:there' is not an address"),
        ({**GANG, "run.replica": 2}, "run.replica=2 is not one of the numbers 0 to 1 of run.replicas=2; lower it"),
        ({"run.replica": 1}, "run.replica=1 is not one of the numbers 0 to 0 of run.replicas=1; lower it, or raise"),
        (
            {**GANG, "run.replicas": 1},
            "run.gang='localhost:6400' is where several learners meet, but run.replicas is 1",
        ),
        (
            {**GANG, "run.launcher": "ray", "run.replica": 1},
            "run.replica=1 is started by that of replica 0 with run.launcher=ray; leave it out",
        ),
        (
            {"run.replicas": 2, "run.launcher": "ray", "run.remote_envs": True, "run.actor_addr": "0.0.0.0:5000"},
            "run.remote_envs=True leaves other replicas without, but run.replicas=2;",
        ),
        ({**GANG, "run.mode": "serial"}, "run.mode='serial' has one learner, but run.replicas=2; set it to parallel"),
        ({**GANG, "run.agent_process": False}, "run.agent_process=False leaves nothing to restart, but"),
        ({**GANG, "jax.sharding": "sharded"}, "jax.sharding='sharded' spreads what all need, but run.replicas=2;"),
        ({**GANG, "replay.mix": "/tmp"}, "replay.mix='/tmp' makes batches differ in kind, but run.replicas=2;"),
        ({"run.from_checkpoint": "/no/such/place"}, "run.from_checkpoint='/no/such/place' does not exist; name"),
        ({"run.from_checkpoint_regex": "(a"}, "run.from_checkpoint_regex='(a' is not a regular expression (missing )"),
    ],
)
def test_impossible(overrides, expected, refusal):
    assert expected in refusal(overrides)


def test_tensorboard_without_its_package(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboardX" else real(name))
    reason = r"needs the package tensorboardX, which is not installed; run .*pip install .*\[tensorboard\]"
    with pytest.raises(ConfigError, match=reason):
        check_modules(load_options({"logger.outputs": ["jsonl", "tensorboard"]}), "logger.outputs")


def test_logdir_is_left_as_it_was(tmp_path):
    check_options(load_options({"logdir": str(tmp_path / "a" / "b")}))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data").write_text("kept")
    check_options(load_options({"logdir": str(tmp_path / "run")}))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["data"]


def test_logdir_below_a_file(tmp_path, refusal):
    (tmp_path / "file").write_text("")
    for logdir in (tmp_path / "file", tmp_path / "file" / "run"):
        assert refusal({"logdir": str(logdir)}).startswith(f"logdir='{logdir}' cannot be written to (")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_logdir_without_permission(tmp_path, refusal):
    (tmp_path / "closed").mkdir(mode=0o500)
    message = refusal({"logdir": str(tmp_path / "closed" / "run")})
    assert "Permission denied" in message and "choose a writable directory" in message


def test_a_run_is_not_mixed_with_itself(refusal, tmp_path):
    (tmp_path / "replay" / "train").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "replay", tmp_path / "replay" / ".." / "replay" / "train"):
        assert "is the run's own; name that of another run" in refusal({"replay.mix": str(place)})


def test_a_replica_has_a_directory_inside_that_of_the_run_and_its_key(tmp_path):
    first = load_options({**GANG, "logdir": str(tmp_path)})
    assert place_replica(first) == first
    other = place_replica(load_options({**GANG, "logdir": str(tmp_path), "run.replica": 1}))
    assert other.logdir == str(tmp_path / "replica-1")
    assert other.run.key_file == str(tmp_path / "run.key")


def test_a_replica_without_the_key_file_that_it_names_is_refused(tmp_path):
    options = load_options({**GANG, "logdir": str(tmp_path), "run.replica": 1, "run.key_file": "/nowhere/run.key"})
    with pytest.raises(ConfigError, match=r"run.key_file='/nowhere/run.key' does not exist; copy that of replica 0"):
        place_replica(options)
