"""The progress file is always whole, and reading it never fails."""

import json
import math

import pytest

from dreamfleet.metrics import Progress, read_progress, write_progress
from dreamfleet.metrics.progress import RoleFigures


def test_round_trip(tmp_path):
    assert read_progress(tmp_path) is None
    progress = Progress(step=5, total_steps=10, score=1.5, env_rate=100.25, ratio=31.5, target_ratio=32, eta_s=3.0)
    write_progress(tmp_path, Progress(step=1))
    write_progress(tmp_path, progress)
    assert read_progress(tmp_path) == progress
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_values_that_json_does_not_have(tmp_path):
    write_progress(tmp_path, Progress(score=math.nan, eta_s=math.inf, env_rate=math.nan))
    assert "NaN" not in (tmp_path / "progress.json").read_text()
    assert read_progress(tmp_path) == Progress()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b'{"step": "x"}',
        b'{"step": []}',
        b"\xff",
        b"[" * 10**5,
        b'{"step": NaN}',
        b'{"step": 1e999}',
    ],
)
def test_corrupt_files_are_no_progress(tmp_path, content):
    (tmp_path / "progress.json").write_bytes(content)
    assert read_progress(tmp_path) is None


def test_other_versions(tmp_path):
    (tmp_path / "progress.json").write_text(json.dumps({"step": 3, "invented": [1], "score": None}))
    assert read_progress(tmp_path) == Progress(step=3)


def test_roles_that_joined_show_their_own_steps_over_all_processes_that_they_had():
    now = [0.0]
    figures = RoleFigures(clock=lambda: now[0])

    def show(**steps: int) -> Progress:
        now[0] += 2.0
        return figures.progress({"roles": {name: {"figures": {"steps": count}} for name, count in steps.items()}})

    show(env0=0, env1=10)
    assert (show(env0=20, env1=30).step, show(env0=20, env1=30).env_rate) == (50, 0.0)
    progress = show(env0=4, env1=30)  # env0 was restarted
    assert (progress.step, progress.env_rate, progress.elapsed_s, progress.total_steps) == (54, 2.0, 8.0, 0)
    assert figures.progress({"roles": {"logger": {}}}).step == 54
