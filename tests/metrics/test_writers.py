"""The JSON line files, and the choice of writers."""

import importlib.util
import json
import os
import subprocess
import sys

import elements
import numpy as np
import pytest

from dreamfleet.errors import ConfigError
from dreamfleet.metrics import JsonlWriter, ScoreWriter, make_writers
from dreamfleet.metrics.tensorboard import TensorBoardWriter
from dreamfleet.metrics.writers import EVAL_KINDS
from dreamfleet.options import load_options
from tests.fleet import DEADLINE_S


def refuse_constant(name):
    raise AssertionError(f"{name} is not JSON")


def read_lines(path):
    lines = path.read_text().split("\n")
    assert lines.pop() == ""
    return [json.loads(line, parse_constant=refuse_constant) for line in lines]


def without_time(rows):
    assert all(isinstance(row.pop("time"), float) for row in rows)
    return rows


def test_one_line_a_step(tmp_path):
    path = tmp_path / "new" / "metrics.jsonl"
    writer = JsonlWriter(path)
    step = elements.Counter(3)
    logger = elements.Logger(step, [writer])
    logger.add({"loss": np.float32(0.5), "count": 7, "done": True, "text": "naïve", "image": np.zeros((4, 4, 3))})
    logger.write()
    step.increment(2)
    logger.add({"loss": 1, "vector": np.ones(3)}, prefix="train")
    logger.close()
    writer.close()
    writer.close()
    rows = read_lines(path)
    assert list(rows[0])[:2] == ["step", "time"]
    assert without_time(rows) == [
        {"step": 3, "loss": 0.5, "count": 7, "done": True, "text": "naïve"},
        {"step": 5, "train/loss": 1},
    ]


def test_values_that_json_does_not_have_become_null(tmp_path):
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    bad = [np.asarray(np.nan), np.asarray(np.inf), np.asarray(-np.inf, np.float16), np.asarray(np.nan, np.longdouble)]
    writer([(1, f"m{index}", value) for index, value in enumerate(bad)])
    assert without_time(read_lines(tmp_path / "metrics.jsonl")) == [
        {"step": 1, "m0": None, "m1": None, "m2": None, "m3": None}
    ]


def test_a_metric_cannot_replace_the_step(tmp_path):
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer([(4, "step", np.asarray(99)), (4, "a", np.asarray(1))])
    assert without_time(read_lines(tmp_path / "metrics.jsonl")) == [{"step": 4, "a": 1}]


def test_pattern(tmp_path):
    writer = JsonlWriter(tmp_path / "metrics.jsonl", pattern="^train/")
    writer([(1, "train/a", np.asarray(1)), (1, "report/a", np.asarray(2)), (2, "other", np.asarray(3))])
    assert without_time(read_lines(tmp_path / "metrics.jsonl")) == [{"step": 1, "train/a": 1}]


@pytest.mark.parametrize("torn", [b'{"step": 2, "lo', b'{"step": 2}', b"\xff\x00", b'{"a": "' + b"x" * 200_000])
@pytest.mark.parametrize("before", [b"", b'{"step": 1, "time": 0.5}\n'])
def test_a_torn_last_line_is_repaired(tmp_path, torn, before):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(before + torn)
    JsonlWriter(path)([(3, "loss", np.asarray(1))])
    steps = [row["step"] for row in read_lines(path)]
    assert steps == ([1] if before else []) + ([2] if torn == b'{"step": 2}' else []) + [3]


def test_whole_files_are_only_appended_to(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in range(3):
        writer = JsonlWriter(path)
        writer([(step, "a", np.asarray(1))])
        writer.close()
    assert [row["step"] for row in read_lines(path)] == [0, 1, 2]


@pytest.mark.distributed
def test_a_killed_writer_tears_no_earlier_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    script = (
        "import sys, numpy as np\n"
        "from dreamfleet.metrics import JsonlWriter\n"
        "writer = JsonlWriter(sys.argv[1])\n"
        "for step in range(10**9):\n"
        "    writer([(step, 'text', 'x' * 5000)])\n"
        "    if step == 20: print('going', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"going\n"
        process.kill()
    JsonlWriter(path).close()
    steps = [row["step"] for row in read_lines(path)]
    assert len(steps) > 20 and steps == list(range(len(steps)))


def test_one_line_an_episode(tmp_path):
    train, evaluation = tmp_path / "scores.jsonl", tmp_path / "eval_scores.jsonl"
    step = elements.Counter(10)
    logger = elements.Logger(step, [ScoreWriter(train, "episode"), ScoreWriter(evaluation, *EVAL_KINDS)])
    logger.add({"score": 1.0, "length": 5, "other": 2}, prefix="episode")
    logger.add({"score": 2.0, "length": 6}, prefix="episode")
    logger.add({"score": 9.0, "length": 8}, prefix="eval_episode")
    step.increment()
    logger.add({"score": 8.0, "length": 7}, prefix="evaluation")
    logger.add({"score": 3.0, "length": 7}, prefix="episode")
    logger.add({"loss": 4.0}, prefix="train")
    logger.close()
    assert without_time(read_lines(train)) == [
        {"step": 10, "episode/score": 1, "episode/length": 5},
        {"step": 10, "episode/score": 2, "episode/length": 6},
        {"step": 11, "episode/score": 3, "episode/length": 7},
    ]
    assert without_time(read_lines(evaluation)) == [
        {"step": 10, "eval_episode/score": 9, "eval_episode/length": 8},
        {"step": 11, "eval_episode/score": 8, "eval_episode/length": 7},
    ]


def test_others_cannot_write(tmp_path):
    before = os.umask(0)
    try:
        JsonlWriter(tmp_path / "metrics.jsonl").close()
    finally:
        os.umask(before)
    assert (tmp_path / "metrics.jsonl").stat().st_mode & 0o022 == 0


def test_make_writers(tmp_path):
    assert [type(writer) for writer in make_writers([], tmp_path, 15)] == [ScoreWriter, ScoreWriter, JsonlWriter]
    writers = make_writers(["tensorboard", "jsonl"], tmp_path, 15)
    assert [type(writer) for writer in writers] == [ScoreWriter, ScoreWriter, JsonlWriter, TensorBoardWriter]


def test_unknown_writers_suggest_the_nearest():
    with pytest.raises(ConfigError, match=r"logger.outputs='tensorbord' is unknown; .*did you mean tensorboard\?"):
        load_options({"logger.outputs": ["jsonl", "tensorbord"]})
    with pytest.raises(ConfigError, match="choose from jsonl, tensorboard"):
        load_options({"logger.outputs": ["xyz"]})


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("mlflow", "mlflow")]
)
def test_missing_package_names_the_extra(tmp_path, monkeypatch, name, package):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted: None if wanted == package else find(wanted))
    with pytest.raises(ConfigError, match=rf"needs the package {package}, .*pip install .*\[{name}\]'"):
        make_writers([name], tmp_path, 15)


@pytest.mark.distributed
def test_importing_metrics_is_light():
    heavy = ("tensorboardX", "wandb", "mlflow", "rich", "jax", "PIL")
    script = f"import sys, dreamfleet.metrics; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    assert result.stdout.strip() == "[]"
