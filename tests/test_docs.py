"""The documentation against what it describes: presets, options, metrics, and code that is run."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dreamfleet.cli import COMMANDS, main
from dreamfleet.commands.demo import TRIAL_EPISODES
from dreamfleet.options.help import write_presets
from dreamfleet.options.load import load_presets
from tests.documented import DOCS, find_undocumented, read_names
from tests.fleet import DEADLINE_S, read_jsonl

ROOT = DOCS.parent
PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def test_every_preset_has_its_line():
    assert read_names("presets.md") == list(load_presets())
    page = (DOCS / "presets.md").read_text()
    assert page == write_presets(page), "run make docs"


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_resolve(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if not _resolves(ROOT / page, *link.partition("#")[::2])]
    assert not missing


def _resolves(page: Path, target: str, anchor: str) -> bool:
    path = page.parent / target if target else page
    if not path.exists() or not anchor:
        return path.exists()
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return anchor in {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_a_broken_link_is_found():
    assert _resolves(ROOT / "README.md", "docs/api.md", "runs")
    assert not _resolves(ROOT / "README.md", "docs/api.md", "walks")
    assert not _resolves(ROOT / "README.md", "docs/apis.md", "")


def test_the_changelog_begins_with_the_version_of_the_package():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == version


def test_the_first_run_tells_how_checkpoints_are_tried():
    assert f"last checkpoints for {TRIAL_EPISODES} episodes each" in (DOCS / "first_run.md").read_text()


def test_shown_commands_exist():
    text = "\n".join((ROOT / page).read_text() for page in PAGES)
    shown = re.findall(r"^(?:[\w-]*\$ +)?dreamfleet ([a-z][\w-]*)(?= )", text, re.MULTILINE)
    assert len(shown) > 20 and set(shown) <= set(COMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        ["--run.env", "8"],
        ["--task", "gmy_CartPole-v1"],
        ["--task", "heatr:Heater"],
        ["--replay.capacity", "500"],
        ["--env.atari.size", "84"],
        ["--logdir", "/dev/null/x"],
        ["--logger.outputs", "comet"],
    ],
)
def test_errors_are_shown_as_they_are(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = [] if "--task" in words else ["--task", "dummy_vector"]
    given += [] if "--logdir" in words else ["--logdir", str(tmp_path / "run")]
    assert main(["train", *given, *words]) == 2
    assert capsys.readouterr().err.strip() in (DOCS / "troubleshooting.md").read_text()


@pytest.mark.distributed
def test_the_example_of_the_api_runs():
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "api.md").read_text(), re.DOTALL)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert result.returncode == 0 and result.stdout.endswith("True\n"), result.stdout + result.stderr


@pytest.mark.distributed
def test_every_metric_of_a_fleet_is_documented(tmp_path):
    """The examples of the page on Python, with a run whose metrics are all looked up."""
    first, second, *_ = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.DOTALL)
    assert "run.scores()" in first
    code = second.replace("/tmp/slippery", str(tmp_path)).replace(
        "steps=500", 'steps=2000, eval_envs=1, run={"report_every": 0.2, "log_every": 0.1}'
    )
    assert str(tmp_path) in code
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert result.returncode == 0 and "<Run complete step 2" in result.stdout, result.stdout + result.stderr
    keys = {key for line in read_jsonl(tmp_path / "metrics.jsonl") for key in line} - {"time"}
    assert {"frames", "actor/batch", "eval_episode/score", "report/reward"} <= keys
    assert not find_undocumented(keys - {"train/reward", "report/reward", "eval/reward"})
