"""The progress file is always whole, and reading it never fails."""

import json
import math

import pytest

from dreamfleet.metrics import Progress, read_progress, write_progress
from dreamfleet.metrics.progress import Eta, RoleFigures


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
        b'{"step": 1%s}' % (b"0" * 400),
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


def test_the_rest_is_estimated_by_the_pace_of_training_alone():
    eta = Eta(total_steps=1000)
    assert [eta.estimate(100 * second, 0, second) for second in range(1, 4)] == [None] * 3, "prefilling"
    assert [eta.estimate(300, 0, 10.0), eta.estimate(300, 1, 40.0), eta.estimate(300, 2, 41.0)] == [None] * 3
    assert eta.estimate(320, 5, 43.0) == 68.0  # ten steps per second since the 41st
    assert eta.estimate(500, 50, 101.0) == pytest.approx(500 / (200 / 60))
    assert eta.estimate(500, 50, 170.0) is None, "nothing has moved for a minute"
    assert eta.estimate(1003, 60, 180.0) == 0.0


def test_a_run_that_ends_by_its_time_is_estimated_by_that():
    assert Eta(0, duration_s=60).estimate(5, 0, 20.0) == 40.0
    assert Eta(0).estimate(5, 3, 20.0) is None


def test_a_run_is_measured_by_the_limit_that_it_is_nearest_to():
    assert Progress(step=30, total_steps=100).goal() == ("step", 30, 100)
    both = Progress(step=30, total_steps=100, updates=40, total_updates=80)
    assert both.goal() == ("update", 40, 80) and both.goal().share == 0.5
    assert Progress(step=90, total_steps=100, updates=40, total_updates=80).goal().unit == "step"
    assert Progress(step=30, updates=40).goal() == ("step", 30, 0)
    assert Progress(updates=40).goal() == ("update", 40, 0), "without environments there are no steps"


def test_the_run_ends_with_the_first_limit_that_it_reaches():
    eta = Eta(total_steps=1000, total_updates=100)
    eta.estimate(100, 10, 10.0)
    assert eta.estimate(200, 12, 20.0) == 80.0  # ten steps and a fifth of an update per second
    assert eta.estimate(300, 72, 30.0) == pytest.approx(28 / 3.1)
    offline = Eta(0, total_updates=100)
    offline.estimate(0, 10, 10.0)
    assert offline.estimate(0, 30, 20.0) == 35.0
