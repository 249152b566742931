"""What the documentation tells users to type: tutorials are followed, and every command anywhere is understood."""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from ruamel.yaml import YAML

from dreamfleet.cli import COMMANDS, Parser, main
from dreamfleet.rpc.keys import make_key
from tests.documented import DOCS, read_blocks
from tests.fleet import DEADLINE_S

ROOT = DOCS.parent
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
PROMPT = re.compile(r"^(?:[\w-]*\$ +)")

# Tutorials are followed with an agent that needs no compiling, for a moment.
QUICK = ["--agent", "dreamfleet.agent.random:RandomAgent", "--run.mode", "serial", "--replay.capacity", "1000"]
QUICK += ["--batch_size", "4", "--batch_length", "8", "--report_length", "4", "--run.train_ratio", "4"]
FOLLOWED = ["first_run.md", "own_env.md"]


# What scripts need that are shown without it, and shorter training, by what they call.
BEFORE = {
    "dreamfleet.train(": """
import dreamfleet
train, quick = dreamfleet.train, {"agent": "dreamfleet.agent.random:RandomAgent", "replay.capacity": 1000, "steps": 300}
dreamfleet.train = lambda *args, **options: train(*args, **{**options, **quick})
""",
    "embodied.run.parallel.combined(": """
from tests.fleet import make_args, make_factories
args = make_args("run", steps=300)
factories = make_factories(args)
make_agent, make_replay_train, make_replay_eval, make_env_train, make_env_eval, make_stream, make_logger = factories
""",
}
# By tests of what they show: the exported policy, roles on other machines, the API.
RUN_ELSEWHERE = ("from load_policy import", "parallel.parallel_replay(", "dreamfleet.check_env(")
SCRIPTS = {
    f"{page.name}-{number}": block
    for page in PAGES
    for number, block in enumerate(read_blocks(page, "python"))
    if not any(what in block for what in RUN_ELSEWHERE)
}


class Command(NamedTuple):
    """A line of `dreamfleet` as it is shown."""

    page: str
    argv: list[str]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.argv)}"


def find_commands(page: Path) -> list[Command]:
    """All lines of `dreamfleet`; those that go on at the next line are joined, others in a line stand by themselves."""
    commands = []
    for block in read_blocks(page, "", "bash", "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in PROMPT.sub("", line).split(" && "):
                if part := re.search(r"^\s*(?:exec |ray job submit -- )?(dreamfleet [a-z].*)", part):
                    commands.append(Command(page.name, shlex.split(part[1], comments=True)[1:]))
    return commands


def write_modules(page: Path, directory: Path) -> None:
    """The Python files that a page shows, whose first line is their name."""
    for block in read_blocks(page, "python"):
        if name := re.match(r"# (\w+\.py)\n", block):
            (directory / name[1]).write_text(block)


def import_episodes(home: Path) -> None:
    """Puts a CartPole episode where the pages say that some were imported."""
    rows = 40
    flags = {
        "is_first": np.arange(rows) == 0,
        "is_last": np.arange(rows) == rows - 1,
        "is_terminal": np.zeros(rows, bool),
    }
    steps = {
        "vector": np.zeros((rows, 4), np.float32),
        "reward": np.ones(rows, np.float32),
        "action": np.zeros(rows, np.int32),
    }
    (home / "episodes").mkdir()
    np.savez(home / "episodes" / "0.npz", **flags, **steps)
    assert main(["replay", "import", "episodes", "~/logdir/offline"]) == 0


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """A home and a working directory with the examples; modules of one test are not those of the next."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for path in (ROOT / "examples").glob("*.py"):
        shutil.copy(path, tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == tmp_path:
            del sys.modules[name]


@pytest.mark.parametrize("command", [c for page in PAGES for c in find_commands(page)], ids=str)
def test_a_shown_command_is_understood(command, tmp_path, capsys):
    """Names, flags, options, presets and tasks; nothing is started."""
    name, *words = command.argv
    for page in PAGES:
        write_modules(page, tmp_path)
    if name in ("train", "demo"):
        if any("offline" in word for word in words):
            import_episodes(tmp_path)
        if "run.key" in words:  # copied there by the command before
            make_key(tmp_path / "run.key")
        preset = ["--preset", "demo"] if name == "demo" else []
        words = [re.sub(r"10\.0\.0\.1|\$\(hostname\)", "127.0.0.1", word) for word in words]  # the user's machine
        assert main(["train", *preset, *words, "--dry-run"]) == 0, capsys.readouterr().err
        return
    assert name in COMMANDS
    module = importlib.import_module(f"dreamfleet.commands.{name.replace('-', '_')}")
    parser = Parser(prog=name)
    module.add_arguments(parser)
    _, rest = parser.parse_known_args(words)
    takes_options = "--KEY" in (parser.usage or "")
    assert not rest or takes_options, rest


@pytest.mark.parametrize("page", FOLLOWED)
def test_a_tutorial_can_be_followed(page, tmp_path, capfd):
    """Every command of it, in order, to its end."""
    write_modules(DOCS / page, tmp_path)
    commands = find_commands(DOCS / page)
    for name, *words in (command.argv for command in commands if command.argv[0] != "dashboard"):
        if name in ("train", "demo"):
            steps = {"20000": "1200", "40000": "500"}  # enough for the first episodes to end
            words = [steps.get(word, word) for word in words] + QUICK
            words += [] if "--steps" in words else ["--steps", "300"]
        assert main([name, *words]) == 0, (name, words, capfd.readouterr())
    made = {path.suffix for path in tmp_path.rglob("*") if path.suffix in (".png", ".mp4")}
    assert made == {".png", ".mp4"}


@pytest.mark.parametrize("page", [page for page in PAGES if "```yaml" in page.read_text()], ids=lambda page: page.name)
def test_shown_yaml_is_read(page):
    assert all(document["kind"] for block in read_blocks(page, "yaml") for document in YAML().load_all(block))


@pytest.mark.distributed
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_shown_python_runs(script, tmp_path):
    before = "".join(code for call, code in BEFORE.items() if call in script)
    code = before + script.replace("/tmp/", f"{tmp_path}/")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
