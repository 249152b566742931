"""Transitions: the only place where one is put together, and what of it goes to replay and to the logger."""

import numpy as np

from dreamfleet.agent.contract import Batch
from dreamfleet.roles.protocol import ENV_ID, IS_EVAL, LOG_PREFIX, RESET, STEP_ID


def make_transition(env_ids: list[int], is_eval: bool, obs: Batch, acts: Batch, outs: Batch) -> Batch:
    """What happened to each environment: the observation and what the agent answered to it, with all `log/` keys."""
    rows = len(env_ids)
    header = {ENV_ID: np.array(env_ids, np.int64), IS_EVAL: np.full(rows, is_eval)}
    answer = {k: v for k, v in {**acts, **outs}.items() if k not in (RESET, STEP_ID)}
    return {**header, **obs, **answer}


def for_replay(transition: Batch) -> Batch:
    return {k: v for k, v in transition.items() if not k.startswith(LOG_PREFIX)}


def split_shown(transition: Batch, shown_ids: set[int], is_full: bool) -> tuple[Batch | None, Batch | None]:
    """The rows for the logger with images, of the environments that are shown, and the others without."""
    images = [k for k, v in transition.items() if v.ndim == 4 and v.dtype == np.uint8]
    if is_full or not images:
        return (transition, None) if images else (None, transition)
    is_shown = [env_id in shown_ids for env_id in transition[ENV_ID].tolist()]
    rest = {k: v for k, v in transition.items() if k not in images}
    if not any(is_shown):
        return None, rest
    if all(is_shown):
        return transition, None
    ours, others = (_index([row for row, is_ours in enumerate(is_shown) if is_ours is kind]) for kind in (True, False))
    return {k: v[ours] for k, v in transition.items()}, {k: v[others] for k, v in rest.items()}


def _index(rows: list[int]) -> slice | list[int]:
    """What picks rows out of an array, without a copy where they follow each other."""
    is_run = rows[-1] - rows[0] == len(rows) - 1
    return slice(rows[0], rows[-1] + 1) if is_run else rows


def join_rows(batches: list[Batch]) -> Batch:
    """The rows of several batches, one after the other."""
    return {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
