"""What roles report of themselves every so often."""

import pytest

from dreamfleet.options import read_args
from dreamfleet.roles.periodic import StatsSender, make_usage
from tests.fleet import make_args


@pytest.mark.parametrize(("role", "is_asked"), [("actor", True), ("replay", False), ("env", False), ("logger", False)])
def test_only_the_agent_asks_nvidia_smi(tmp_path, monkeypatch, role, is_asked):
    asked = []
    monkeypatch.setattr("elements.usage.NvsmiStats.__call__", lambda _: asked.append(role) or {"compute_avg/gpu0": 0.5})
    options = read_args(make_args(tmp_path, usage={"psutil": True, "nvsmi": True}))
    usage = make_usage(options) if role == "logger" else StatsSender(options, role, role, is_on=False)._usage
    figures = usage()
    assert bool(asked) == ("nvsmi/compute_avg/gpu0" in figures) == is_asked and "psutil/proc_ram_gb" in figures
