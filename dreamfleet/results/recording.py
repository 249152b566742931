"""Videos of a trained agent: its episodes, and those in its report, such as open-loop predictions."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dreamfleet.agent.contract import Agent, Batch
from dreamfleet.base.dimensions import STEP_ID_BYTES
from dreamfleet.base.keys import is_logged
from dreamfleet.envs.rendering import FRAME
from dreamfleet.results.rollout import Rollout
from dreamfleet.results.video import VideoWriter

CHANNELS = (1, 3)


class Recording(NamedTuple):
    """An episode and its video, which the limit on frames may have cut."""

    video: VideoWriter
    score: float
    length: int


def record_episodes(
    rollout: Rollout, episodes: int, make_video: Callable[[int], VideoWriter], max_frames: int
) -> Iterator[Recording]:
    """Plays in the rollout's one environment, whose observations have a frame, and yields each episode at its end."""
    assert len(rollout.env_ids) == 1, rollout.env_ids
    steps = rollout.steps()
    for index in range(episodes):
        with make_video(index) as video:
            score, length = 0.0, 0
            for rows in steps:
                if rows["is_first"][0]:  # also when the environment broke and was built again
                    score, length = 0.0, 0
                score, length = score + float(rows["reward"][0]), length + 1
                if video.frames < max_frames:
                    video.add(rows[FRAME][0])
                if rows["is_last"][0]:
                    break
        yield Recording(video, score, length)


def report_videos(agent: Agent, rollout: Rollout, length: int) -> dict[str, np.ndarray]:
    """The videos (T, H, W, 3) in the agent's report on the first `length` steps of each environment."""
    batch = next(iter(agent.stream(iter([_sequences(rollout, length)]))))
    _, metrics = agent.report(agent.init_report(len(rollout.env_ids)), batch)
    return {name: _colour(np.asarray(value)) for name, value in _videos(metrics)}


def _sequences(rollout: Rollout, length: int) -> Batch:
    """Rows of all environments as replay would give them: (B, T, ...), with numbers that no step has."""
    steps = rollout.steps()
    rows = [{key: np.array(value) for key, value in next(steps).items() if _is_kept(key)} for _ in range(length)]
    batch = {key: np.stack([row[key] for row in rows], 1) for key in rows[0]}
    shape = batch["is_first"].shape
    return {**batch, "consec": np.zeros(shape, np.int32), "stepid": np.zeros((*shape, STEP_ID_BYTES), np.uint8)}


def _is_kept(key: str) -> bool:
    return key not in ("envid", "is_eval") and not is_logged(key)


def _videos(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in metrics.items():
        if getattr(value, "ndim", 0) == 4 and value.dtype == np.uint8 and value.shape[-1] in CHANNELS:
            yield name, value


def _colour(video: np.ndarray) -> np.ndarray:
    return video if video.shape[-1] == 3 else np.repeat(video, 3, -1)
