"""The benchmark of learning curves: runs that are taken up again, what is read from them, and the comparison."""

import json

import numpy as np
import pytest

from benchmarks.learning.__main__ import show_margin
from benchmarks.learning.compare import compare, read_reference
from benchmarks.learning.runs import run_to_end, score_at
from benchmarks.learning.tasks import TASKS, VARIANTS, Task, Variant
from dreamfleet.options import load_options
from dreamfleet.results.curves import Curve, RunCurve

RANDOM = {"agent": "dreamfleet.agent.random:RandomAgent", "task": "dummy_vector", "env.dummy.length": 10}
SMALL = {"batch_size": 2, "batch_length": 8, "report_length": 4, "run.envs": 2, "run.train_ratio": 1.0}


@pytest.mark.distributed
@pytest.mark.parametrize("variant", [Variant(resumes=2), Variant({"run.mode": "serial"})], ids=["resumed", "serial"])
def test_a_run_is_taken_to_its_end_and_read(tmp_path, variant):
    task = Task({**RANDOM, **SMALL}, 600, (300, 600), presets=())
    found = run_to_end(tmp_path, task, variant, seed=3)
    assert found["points"] == {"300": 10.0, "600": 10.0} and found["area"] == 10.0
    assert found["legs"] == variant.resumes + 1 and found["minutes"] > 0 and found["peak_mb"] > 0
    log = (tmp_path / "train.log").read_text()
    assert (log.count("new run"), log.count("resuming")) == (1, variant.resumes)
    result = tmp_path / "benchmark.json"
    before = result.stat().st_mtime_ns, json.loads(result.read_text())
    assert run_to_end(tmp_path, task, variant, seed=3) == found
    assert before == (result.stat().st_mtime_ns, json.loads(result.read_text())), "what is done is not run again"


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_options_are_those_of_a_run(name, variant):
    task = TASKS[name]
    options = load_options({**task.options, **VARIANTS[variant].options, "run.steps": task.steps}, task.presets)
    assert options.run.steps == max(task.points)


def make_curve(scores: list[float]) -> RunCurve:
    return RunCurve(np.linspace(100, 60_000, len(scores)), np.array(scores, float))


def test_scores_are_of_the_steps_before_a_point():
    curve = RunCurve(np.array([90.0, 100.0, 150.0, 200.0, 210.0]), np.array([1.0, 2.0, 3.0, 5.0, 99.0]))
    assert score_at(curve, 200, 100) == 4.0
    assert np.isnan(score_at(curve, 50, 50))


def test_a_worse_curve_is_found_out_and_an_equal_one_is_not():
    task = TASKS["cartpole"]
    rng = np.random.default_rng(0)
    reference, equal = (
        Curve("x", "", [make_curve(list(rng.normal(400, 20, 200))) for _ in range(5)]) for _ in range(2)
    )
    worse = Curve("x", "", [make_curve(list(rng.normal(300, 20, 200))) for _ in range(5)])
    for other, is_worse in ((worse, True), (equal, False)):
        rows = compare(read_reference(other, task), read_reference(reference, task), task)
        assert [row["at"] for row in rows] == [*map(str, task.points), "area"]
        assert (rows[-1]["p_below"] < 0.01) == is_worse
        assert all(row["ours"].low <= row["ours"].value <= row["ours"].high for row in rows)


def test_the_margin_to_a_bar_is_in_standard_deviations_of_the_seeds(capsys):
    bar = TASKS["probe_delayed"].bar
    lines = [{"task": "probe_delayed", "points": {"3000": 0.0, "6000": bar + margin}} for margin in (0.02, 0.03, 0.04)]
    show_margin("probe_delayed", lines)
    assert capsys.readouterr().out == f"probe_delayed: 3 of 3 above {bar:.3f}, mean {bar + 0.03:.3f}, 3.0 sd above it\n"
    show_margin("cartpole", lines)
    assert capsys.readouterr().out == ""
