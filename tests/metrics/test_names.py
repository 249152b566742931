"""The names of the reference beside or instead of ours."""

import elements
import pytest

from dreamfleet.metrics import make_writers
from dreamfleet.metrics.names import reference_name
from tests.fleet import read_jsonl


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("actor/steps_per_s", "fps/policy"),
        ("env/steps_per_s", "fps/env"),
        ("learner/steps_per_s", "fps/train"),
        ("episodes/abandoned", "parallel/ep_abandoned"),
        ("episode/log/coins/sum", "epstats/log/coins/sum"),
        ("eval_episode/score", "evaluation/score"),
        ("actor/usage/psutil/proc_ram_gb", "usage/agent/psutil/proc_ram_gb"),
        ("logger/usage/psutil/proc_ram_gb", "usage/logger/psutil/proc_ram_gb"),
        ("replay/limiter/sample_wait_s", "limiter/sample_wait_dur"),
        ("replay/ratio", "replay/replay_ratio"),
        ("learner/replay/sample_batch_train/wait_ms", "client/replay_train/sample_batch_train/wait_ms"),
        ("env/actor/act/rate", "client/env_actor/act/rate"),
        ("replay/add_batch/rate", "server/replay/add_batch/rate"),
        ("learner/time/train", "timer/agent/train"),
        ("replay/eval/items", "replay_eval/items"),
    ],
)
def test_names(ours, theirs):
    assert reference_name(ours) == theirs


@pytest.mark.parametrize(
    "name", ["train/loss/dyn", "report/loss/rep", "episode/score", "episode/length", "replay/items"]
)
def test_names_that_are_the_same(name):
    assert reference_name(name) == name


def write(logdir, names):
    """What the file of metrics gets of three lines."""
    step = elements.Counter()
    logger = elements.Logger(step, make_writers(["jsonl"], logdir, 15, metric_names=names))
    for inserts in (100, 130, 190):
        step.load(inserts)
        logger.add({"actor/steps_per_s": 7.0, "replay/inserts": inserts, "train/loss": 1.0})
        logger.add({"score": 5.0, "length": 4}, prefix="episode")
        logger.write()
    logger.close()
    assert [line["episode/score"] for line in read_jsonl(logdir / "scores.jsonl")] == [5.0, 5.0, 5.0]
    return [{k: v for k, v in line.items() if k != "time"} for line in read_jsonl(logdir / "metrics.jsonl")]


def test_names_of_the_reference_only(tmp_path):
    lines = write(tmp_path, "reference")
    assert {"fps/policy", "train/loss", "episode/score"} <= lines[0].keys() and "actor/steps_per_s" not in lines[0]
    assert [line.get("replay/inserts") for line in lines] == [None, 30, 60], "counted from line to line"


def test_both_names(tmp_path):
    lines = write(tmp_path, "both")
    assert all(line["fps/policy"] == line["actor/steps_per_s"] == 7.0 for line in lines)
    assert [line["replay/inserts"] for line in lines] == [100, 130, 190]


def test_our_names(tmp_path):
    assert "fps/policy" not in write(tmp_path, "dreamfleet")[0]
