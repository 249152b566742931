"""The documentation against what it describes: presets, options, metrics, and code that is run."""

import re
import subprocess
import sys

import pytest
from dreamfleet.options.resume import CHANGEABLE

from dreamfleet.options.load import load_presets
from tests.documented import DOCS, find_undocumented, read_names
from tests.fleet import DEADLINE_S, read_jsonl


def test_every_preset_has_its_line():
    assert read_names("presets.md") == list(load_presets())


def test_every_option_that_may_change_is_listed():
    listed = set(re.findall(r"`([^` ]+)`", (DOCS / "resuming.md").read_text()))
    assert set(CHANGEABLE) <= listed


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)\)", (DOCS / page).read_text())
    missing = [link for link in links if "://" not in link and not (DOCS / link).exists()]
    assert not missing


@pytest.mark.distributed
def test_every_metric_of_a_fleet_is_documented(tmp_path):
    """The examples of the page on Python, with a run whose metrics are all looked up."""
    first, second = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.DOTALL)
    assert "run.scores()" in first
    code = second.replace("/tmp/slippery", str(tmp_path)).replace(
        "steps=500", 'steps=500, eval_envs=1, run={"report_every": 0.2}'
    )
    assert str(tmp_path) in code
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert result.returncode == 0 and "<Run done step 5" in result.stdout, result.stdout + result.stderr
    keys = {key for line in read_jsonl(tmp_path / "metrics.jsonl") for key in line} - {"time"}
    assert {"frames", "actor/batch", "eval_episode/score", "report/reward"} <= keys
    assert not find_undocumented(keys - {"train/reward", "report/reward", "eval/reward"})
