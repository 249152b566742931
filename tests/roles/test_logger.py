"""What the logger keeps to when it, or the whole run, starts again."""

import elements
import numpy as np

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.metrics.progress import read_progress
from dreamfleet.options import read_args
from dreamfleet.roles.logger import LoggerRole
from dreamfleet.roles.protocol import LoggerCounts, LogPosition, ReplayCounts, RunPosition, RunProgress, SaveRequest
from tests.fleet import read_jsonl


def end_episode(role: LoggerRole, position: LogPosition, is_eval: bool = False, score: float = 2.0) -> None:
    for is_first in (True, False):
        flags = {"is_first": is_first, "is_last": not is_first, "is_eval": is_eval}
        row = {"envid": np.array([0]), "reward": np.full(1, score / 2), **{k: np.array([v]) for k, v in flags.items()}}
        role.tran(row, position.to_meta())


def make_role(logdir) -> tuple[LoggerRole, elements.Logger, list]:
    steps = []
    logger = elements.Logger(elements.Counter(), [lambda summaries: steps.extend(step for step, _, _ in summaries)])
    return LoggerRole(logger, read_args(elements.Config(logdir=str(logdir)))), logger, steps


def test_steps_after_a_resume_do_not_go_back(tmp_path):
    """The last steps of a life come after its checkpoint, and the first rows of the next do not say where they are."""
    role, *_ = make_role(tmp_path)
    end_episode(role, LogPosition(247))
    role.close()
    again, logger, steps = make_role(tmp_path)
    again.restore(Checkpoints(tmp_path))
    again.resume()
    end_episode(again, LogPosition(0))
    logger.write()
    assert steps and min(steps) == 247


def test_rows_of_others_count_on_from_the_step_of_the_last_life(tmp_path):
    """A portal program does not say where its rows are."""
    role, *_ = make_role(tmp_path)
    end_episode(role, LogPosition(247))
    role.close()
    again, logger, steps = make_role(tmp_path)
    again.resume()
    end_episode(again, LogPosition(None))
    logger.write()
    assert steps and max(steps) == 249
    again.write_progress()
    progress = read_progress(tmp_path)
    assert progress and (progress.step, progress.episodes) == (249, 2), "nobody asks for a checkpoint with its episodes"


def test_a_checkpoint_gets_the_score_of_new_episodes(tmp_path):
    role, *_ = make_role(tmp_path)
    checkpoints = Checkpoints(tmp_path)

    def save(episodes: int, **kind) -> LoggerCounts:
        for _ in range(episodes):
            end_episode(role, LogPosition(1), **kind)
        return LoggerCounts.from_data(role.save(SaveRequest(checkpoints.draft(1).name).to_data(), {}))

    assert save(9, score=4.0).score is None, "too few"
    assert save(1, score=8.0) == LoggerCounts(10, 4.4, is_eval=False)
    assert save(0).score is None, "the same episodes again are no second score"
    assert save(20, score=6.0).score == 6.0, "those before are not among the last"
    assert save(12, is_eval=True, score=50.0) == LoggerCounts(42, 50.0, is_eval=True)
    assert save(10, score=99.0).score is None, "where there is evaluation, training does not count"


def test_a_logger_elsewhere_goes_on_from_its_own_checkpoint(tmp_path):
    role, *_ = make_role(tmp_path)
    end_episode(role, LogPosition(step=7))
    role.add({}, RunPosition(step=7, progress=RunProgress(ReplayCounts(), 3, 1.0)).to_meta())
    role.save(SaveRequest("step-000000000007-000001", run="of the trainer").to_data(), {})
    again, *_ = make_role(tmp_path)
    again.restore(Checkpoints(tmp_path))
    assert (again._progress.step, again._progress.episodes, again._progress.updates) == (7, 1, 3)


def test_an_output_with_one_value_per_step_gets_every_episode(tmp_path):
    outputs = [
        elements.logger.JSONLOutput(tmp_path, name, pattern, parallel=False)
        for name, pattern in (("scores.jsonl", "episode/score"), ("eval.jsonl", "evaluation/score"))
    ]
    logger = elements.Logger(elements.Counter(), outputs)
    role = LoggerRole(logger, read_args(elements.Config(logdir=str(tmp_path))))
    flags = {"is_first": [True] * 4, "is_last": [True] * 4, "is_eval": [False, False, True, True]}
    rows = {"envid": np.arange(4), "reward": np.arange(4.0), **{k: np.array(v) for k, v in flags.items()}}
    for step in (2, 4):
        role.tran(dict(rows), LogPosition(step).to_meta())
    role.close()
    for name, key, scores in (("scores", "episode/score", [0, 1]), ("eval", "evaluation/score", [2, 3])):
        lines = read_jsonl(tmp_path / f"{name}.jsonl")
        assert lines == [{"step": step, key: score} for step in (2, 4) for score in scores], "and no line of the others"
