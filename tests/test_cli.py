"""The command line: what is printed, and the exit codes."""

import io
import queue
import re
import socket
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dreamfleet.cli import COMMANDS, main
from dreamfleet.errors import CheckpointError, ConfigError, RunFailed, RunRefused
from dreamfleet.launch.outcome import Outcome
from dreamfleet.metrics.progress import Progress, write_progress
from dreamfleet.options import Options, flatten, load_options, save_options
from tests.fleet import DEADLINE_S


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DREAMFLEET_KEY_FILE", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def logdir(tmp_path):
    return str(tmp_path / "run")


@pytest.fixture
def free_addr():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"localhost:{probe.getsockname()[1]}"


@pytest.fixture
def launched(monkeypatch):
    """Records what would be launched: these tests are about what comes before and after."""
    calls = []

    def record(*call: object, **kwargs: object) -> Outcome:
        calls.append((*call, kwargs) if kwargs else call[0])
        return Outcome("complete")

    monkeypatch.setattr("dreamfleet.launch.run.run_options", record)
    monkeypatch.setattr("dreamfleet.launch.run.run_role", record)
    return calls


def take_a_step(config: Options) -> None:
    """Leaves what a run does that has got as far as a step."""
    save_options(config)
    write_progress(config.logdir, Progress(step=1))


@pytest.fixture
def refusal(capsys, launched):
    """Runs a command that must be refused, and returns its one line."""

    def run(*argv: str) -> str:
        assert main(argv) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and launched == []
        assert re.fullmatch(r"error: .+; .+\n", captured.err)
        return captured.err

    return run


def test_help_lists_the_commands(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^ +{name}\s+{summary}$", text, re.MULTILINE) for name, summary in COMMANDS.items())
    assert "example" in text


def test_train_help_shows_every_option(capsys):
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"--{key} " in text for key in flatten(Options()))
    assert "examples:" in text and "--dry-run" in text and "cartpole" in text


def test_role_help(capsys):
    assert main(["role", "--help"]) == 0
    text = capsys.readouterr().out
    assert "examples:" in text and "--addr-actor" in text and "env, envs, replay, logger" in text


def test_dry_run_prints_the_config_and_leaves_nothing(capsys, launched, logdir, tmp_path):
    argv = ["train", "--preset", "cartpole", "debug", "--steps", "1e4", "--run.agent_process", "False"]
    assert main([*argv, "--logdir", logdir, "--dry-run"]) == 0
    printed = YAML(typ="safe").load(capsys.readouterr().out)
    words = ["--steps", "1e4", "--run.agent_process", "False", "--logdir", logdir]
    assert load_options(printed) == load_options(words, ["cartpole", "debug"])
    assert launched == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("gym_CartPole-v99", "cannot be made by Gymnasium"),
        ("gym_CartPol-v1", "Did you mean: `CartPole`"),
        ("atari_pongg", "is not one of the"),
        ("minigrid_Emty-5x5-v0", "try minigrid_MiniGrid-Empty-5x5-v0"),
        ("pinpad_tree", "try pinpad_three"),
        ("dummy_imag", "use dummy_image or dummy_vector"),
        ("mine:mak", "names mak, which module mine does not have; did you mean make?"),
        ("mine.inner:make", "names module mine.inner, which was not found"),
        ("cartpole", "known suites: dummy, gym"),
        ("minecraftdiamond", "did you mean minecraft_diamond?"),
    ],
)
def test_a_dry_run_checks_that_the_task_exists(task, message, refusal, logdir, tmp_path):
    (tmp_path / "mine.py").write_text("raise RuntimeError('is only read')\ndef make():\n    pass\n")
    assert message in refusal("train", "--task", task, "--logdir", logdir, "--dry-run")


def test_names_that_only_running_a_module_would_tell_are_left_to_the_run(tmp_path, logdir):
    for number, source in enumerate(("from os import *", "def __getattr__(name): ...", "globals()['make'] = 3", "a b")):
        (tmp_path / f"own{number}.py").write_text(source)
        assert main(["train", "--task", f"own{number}:make", "--logdir", logdir, "--dry-run"]) == 0


def test_flags_may_have_underscores_and_repeat(capsys, logdir):
    assert main(["train", "--dry_run", "--preset", "cartpole", "--preset=debug", "--logdir", logdir]) == 0
    assert "task: gym_CartPole-v1\n" in (out := capsys.readouterr().out) and "batch_size: 2\n" in out


def test_train_says_and_starts(capsys, launched, logdir):
    argv = ["train", "--task", "dummy_vector", "--logdir", logdir, "--envs", "3", "--eval-envs", "1"]
    assert main(argv) == 0
    (config,) = launched
    assert (config.logdir, config.run.envs) == (logdir, 3)
    summary, last = capsys.readouterr().out.splitlines()
    assert summary.startswith("new run: ") and last == "complete: step 0 | no checkpoint"
    for part in ("dummy_vector", "dreamfleet.agent.dreamer:Dreamer", "3 train, 1 eval", logdir):
        assert part in summary
    take_a_step(config)
    assert main([*argv, "--steps", "50"]) == 0
    assert capsys.readouterr().out.startswith("resuming: ")


def test_resuming_with_other_settings_is_refused(refusal, logdir):
    config = load_options({"logdir": logdir, "task": "dummy_vector"})
    take_a_step(config)
    words = ("--task", "dummy_vector", "--logdir", logdir, "--batch_size", "8")
    assert "(batch_size: 16 -> 8); set these back" in refusal("train", *words)
    assert load_options(YAML(typ="safe").load(Path(logdir, "config.yaml"))) == config


def test_a_run_without_steps_does_not_bind_its_directory(launched, logdir):
    save_options(load_options({"logdir": logdir, "batch_size": 4}))
    assert main(["train", "--task", "dummy_vector", "--logdir", logdir, "--batch_size", "8"]) == 0
    assert launched[0].batch_size == 8


@pytest.mark.parametrize(("reason", "code"), [("SIGHUP", 129), ("SIGINT", 130), ("SIGPIPE", 141), ("SIGTERM", 143)])
def test_a_stopped_run_says_how_to_resume_and_no_other_seed_starts(reason, code, capsys, monkeypatch, tmp_path):
    started = []

    def stop(config):
        started.append(config.seed)
        return Outcome("stopped", reason)

    monkeypatch.setattr("dreamfleet.launch.run.run_options", stop)
    assert main(["train", "--task", "dummy_vector", "--seeds", "3", "4", "--steps", "100"]) == code
    assert started == [3]
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(
        rf"stopped by {reason}: step 0/100 \| no checkpoint \| resume with: python -m dreamfleet train "
        rf"--task dummy_vector --seeds 3 4 --steps 100 --logdir {tmp_path}/home/logdir/\S+",
        last,
    ), last


def test_several_seeds(launched, logdir):
    assert main(["train", "--task", "dummy_vector", "--logdir", logdir, "--seeds", "0", "2", "2"]) == 0
    assert [(config.seed, config.logdir) for config in launched] == [(0, f"{logdir}/seed_0"), (2, f"{logdir}/seed_2")]


def test_all_seeds_are_checked_before_the_first_starts(refusal, logdir):
    take_a_step(load_options({"logdir": f"{logdir}/seed_2", "seed": 2, "batch_size": 4}))
    assert "batch_size: 4 -> 16" in refusal("train", "--task", "dummy_vector", "--logdir", logdir, "--seeds", "0", "2")


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        ([], "required: COMMAND"),
        (["tain"], "invalid choice: 'tain', choose from demo, train, join,"),
        (["tain"], "(did you mean train?)"),
        (["--task", "train"], "see `dreamfleet --help`"),
        (["train", "--run.env", "8"], "unknown option --run.env; did you mean --run.envs?"),
        (["train", "--presets", "debug"], "did you mean --preset?"),
        (["train", "--dryrun"], "did you mean --dry-run?"),
        (["train", "--preset", "nope"], "preset='nope' is unknown; choose from debug"),
        (["train", "--preset"], "see `dreamfleet train --help`"),
        (["train", "--seeds", "a"], "'a'"),
        (["train", "--seeds", "-1"], "seed=-1 must be at least 0"),
        (["train", "--seed", "0", "1"], "seed='0 1' has 2 values but takes one"),
        (["train", "--run.envs", "x"], "run.envs='x' is not a whole number"),
        (["train", "--replay.capacity", "5"], "replay.capacity=5 is below batch_size*length"),
        (["train", "--logdir", "/dev/null/x"], "logdir='/dev/null/x' cannot be written to"),
        (["train", "--agent", "dreamfleet.nothing:Agent"], "names module dreamfleet.nothing, which was not found"),
        (["train", "--agent", "nothing.at.all:Agent"], "names module nothing, which was not found"),
        (["train", "--agent", "dreamfleet.errors.deeper:Agent"], "dreamfleet.errors.deeper, which was not found"),
        (["train"], "task='' names no environment; give one, such as gym_CartPole-v1"),
        (["train", "--preset", "random"], "or a preset with a task, such as cartpole"),
        (["train", "--task", "nothing:make"], "task='nothing:make' names module nothing"),
        (["train", "--task", "CartPole-v1"], "names an unknown suite; did you mean gym_CartPole-v1? (or give"),
        (["train", "--task", "ALE/Pong_v5-v0"], "did you mean gym_ALE/Pong_v5-v0?"),
        (["train", "--task", "nothing"], "known suites: dummy, gym,"),
        (["train", "--task", "mine.py:make"], "task='mine.py:make' names a file; name its module: mine:make"),
        (["train", "--agent", "mine.py:Agent"], "agent='mine.py:Agent' names a file; name its module: mine:Agent"),
        (["train", "--task"], "task='' has no value; write it behind the option, as in --task VALUE"),
        (["role"], "required: KIND"),
        (["role", "learner"], "'learner'"),
        (["role", "evns"], "invalid choice: 'evns', choose from env, envs, replay, logger (did you mean envs"),
        (["dashboard", "--prot", "8787"], "argument='--prot' is unknown; did you mean --port?"),
        (["role", "env"], "addr-actor='ipc:{auto}' is not an address that role env can reach; set --addr-actor"),
        (
            ["role", "envs", "--addr-actor", "ipc:/tmp/a"],
            "addr-logger='ipc:{auto}' is not an address that role envs can reach",
        ),
        (["role", "replay"], "addr-replay='ipc:{auto}' is not an address that role replay can reach"),
        (
            ["role", "logger", "--addr-logger", "localhost:{auto}"],
            "addr-logger='localhost:{auto}' is not an address that role logger can reach",
        ),
        (["role", "replay", "--addr-replay", "nonsense"], "run.replay_addr='nonsense' is not an address"),
        (["role", "replay", "--addr-replay", "ipc:/tmp/a", "--key", "nope"], "nope' is not a file; copy run.key"),
        (["role", "env", "--addr-actor", "ipc:/tmp/a", "--addr-logger", "ipc:/tmp/b", "--index", "-1"], "index=-1"),
        (["role", "replay", "--addr-replay", "ipc:/tmp/a", "--index", "1"], "index=1 has no meaning for role replay"),
        (["role", "envs", "--addr-actor", "ipc:/tmp/a", "--addr-logger", "ipc:/tmp/b", "--eval"], "is for role env;"),
    ],
)
def test_user_errors_are_one_line(argv, part, refusal):
    assert part in refusal(*argv)


@pytest.mark.parametrize("text", ["defaults: [model]\n", "- a\n", "a: [", ""])
def test_the_config_of_another_program_is_left_alone(text, refusal, tmp_path):
    (tmp_path / "config.yaml").write_text(text)
    message = refusal("train", "--task", "dummy_vector", "--logdir", ".")
    assert "holds a config.yaml that is not of a run; name a directory" in message
    assert (tmp_path / "config.yaml").read_text() == text


def test_a_file_that_a_module_of_python_hides_has_to_be_renamed(refusal, tmp_path):
    (tmp_path / "random.py").write_text("def make(): ...\n")
    message = refusal("train", "--task", "random:make", "--logdir", "run")
    assert "names a module of Python, which is found instead of random.py; rename the file" in message


def test_modules_of_python_are_found_before_files_of_the_user(launched, logdir, tmp_path):
    (tmp_path / "queue.py").write_text("raise AssertionError('of the user')\n")
    assert main(["train", "--task", "dummy_vector", "--logdir", logdir]) == 0 and launched
    assert str(tmp_path) in sys.path
    assert PathFinder.find_spec("queue").origin == queue.__spec__.origin


def test_a_terminal_may_lack_letters(launched, monkeypatch):
    content = io.BytesIO()
    with io.TextIOWrapper(content, encoding="ascii") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["train", "--task", "dummy_vector", "--logdir", "möglich"]) == 0 and launched
        assert b"m\\xf6glich" in content.getvalue()


def test_a_run_does_not_litter_the_home_directory(refusal, tmp_path):
    (tmp_path / "home").mkdir()
    assert "is not a place for the files of a run" in refusal("train", "--task", "dummy_vector", "--logdir", "~")


def test_a_directory_is_taken_where_there_is_no_home(launched, logdir, monkeypatch):
    monkeypatch.setattr(Path, "home", classmethod(_without_home))
    assert main(["train", "--task", "dummy_vector", "--logdir", logdir]) == 0 and launched


def _without_home(_: type) -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_names_in_descriptions_keep_their_capitals(capsys):
    assert main(["demo", "--help"]) == 0
    assert "Train on CartPole" in capsys.readouterr().out


def test_port_in_use(refusal):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        addr = f"localhost:{server.getsockname()[1]}"
        server.listen()
        assert "already in use" in refusal("train", "--run.actor_addr", addr)
        assert "already in use" in refusal("role", "replay", "--addr-replay", addr)


def test_agent_beside_the_user_is_found_and_not_imported(launched, logdir, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("raise SystemError('imported')")
    (tmp_path / "mine" / "agent.py").write_text("raise SystemError('imported')\nclass Agent: ...\ndef make(): ...")
    assert main(["train", "--logdir", logdir, "--agent", "mine.agent:Agent", "--task", "mine.agent:make"]) == 0
    assert len(launched) == 1 and str(tmp_path) in sys.path and "mine" not in sys.modules


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RunFailed("replay died\nTraceback: cause"), 1, "error: replay died\nTraceback: cause\n"),
        (RunRefused("agent: a=1 is wrong"), 2, "error: agent: a=1 is wrong\n"),
        (CheckpointError("disk full"), 1, "error: disk full\n"),
        (ConfigError("run.x", 1, "is wrong", "mend it"), 2, "error: run.x=1 is wrong; mend it\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_exit_codes(error, code, message, capsys, logdir, monkeypatch):
    def fail(config):
        raise error

    monkeypatch.setattr("dreamfleet.launch.run.run_options", fail)
    assert main(["train", "--task", "dummy_vector", "--logdir", logdir]) == code
    assert capsys.readouterr().err == message


def test_role_joins_with_addresses_and_key(launched, logdir, tmp_path):
    (tmp_path / "run.key").write_text("secret")
    argv = ["role", "env", "--addr-actor", "far:5000", "--addr_logger=far:5002", "--key", "run.key", "--logdir", logdir]
    assert main([*argv, "--index", "3", "--eval", "--task", "dummy_image", "--preset", "debug"]) == 0
    ((kind, config, kwargs),) = launched
    assert (kind, kwargs) == ("env", {"index": 3, "is_eval": True})
    assert (config.run.actor_addr, config.run.logger_addr) == ("far:5000", "far:5002")
    assert (config.task, config.batch_size, config.logdir) == ("dummy_image", 2, logdir)
    assert config.run.key_file == str(tmp_path / "run.key")


@pytest.mark.parametrize("host", ["[::1]", "[fe80::1%lo]"])
def test_ipv6_addresses_are_accepted(host, launched, logdir, tmp_path):
    (tmp_path / "run.key").write_text("secret")
    argv = ["role", "envs", "--addr-actor", f"{host}:5000", f"--addr-logger={host}:5002", "--key", "run.key"]
    assert main([*argv, "--task", "dummy_vector", "--logdir", logdir, "--index", "16"]) == 0
    ((_, config, kwargs),) = launched
    assert (config.run.actor_addr, config.run.logger_addr) == (f"{host}:5000", f"{host}:5002")
    assert kwargs["index"] == 16, "where the numbers of this worker's environments begin"


def test_role_on_tcp_needs_a_key(refusal, free_addr):
    assert f"run.key' is missing, but {free_addr} needs a key" in refusal("role", "replay", "--addr-replay", free_addr)


@pytest.mark.parametrize("given", [["--logdir", "."], ["--key", "run.key"], ["--run.key_file", "run.key"]])
def test_role_finds_the_key(given, launched, free_addr, logdir, tmp_path):
    (tmp_path / "run.key").write_text("secret")
    assert main(["role", "replay", "--addr-replay", free_addr, "--logdir", logdir, *given]) == 0
    assert launched[0][1].run.key_file == str(tmp_path / "run.key")


@pytest.mark.parametrize("flag", ["--key", "--run.key_file"])
def test_a_key_that_is_not_there_is_refused(flag, refusal, free_addr, tmp_path):
    text = refusal("role", "replay", "--addr-replay", free_addr, flag, "no.key")
    assert f"key='{tmp_path / 'no.key'}' is not a file; copy run.key" in text


def test_role_on_unix_sockets_needs_no_key(launched, logdir):
    assert main(["role", "logger", "--addr-logger", "ipc:/tmp/a", "--logdir", logdir]) == 0
    assert launched[0][2] == {"index": None, "is_eval": False}


@pytest.mark.distributed
def test_help_of_the_module_is_light():
    command = [sys.executable, "-X", "importtime", "-m", "dreamfleet", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0 and "train" in done.stdout
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "dreamfleet.cli" in imported
    assert imported.isdisjoint({"numpy", "elements", "ruamel.yaml", "zmq", "portal", "jax", "dreamfleet.options"})


@pytest.mark.distributed
def test_module_exits_with_the_code_and_no_traceback():
    command = [sys.executable, "-m", "dreamfleet", "train", "--run.env", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown option --run.env; did you mean --run.envs?\n"


def test_environments_join_a_run_without_others_for_evaluation_unless_asked_for(monkeypatch, tmp_path):
    joined = []
    monkeypatch.setattr(
        "dreamfleet.launch.run.run_role", lambda kind, options, **_: joined.append(options.run) or Outcome("complete")
    )
    words = [
        "role",
        "envs",
        "--addr-actor",
        "localhost:5000",
        "--addr-logger",
        "localhost:5002",
        "--logdir",
        str(tmp_path),
    ]
    words += ["--task", "dummy_vector", "--run.transport", "portal", "--envs", "8", "--logdir", str(tmp_path)]
    assert main(words) == 0 and main([*words, "--eval-envs", "2"]) == 0
    assert [(run.envs, run.eval_envs) for run in joined] == [(8, 0), (8, 2)]
