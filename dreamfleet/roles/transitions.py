"""Transitions: put together by the actor, and read where they arrive, in replay and logger."""

from typing import Any

import numpy as np

from dreamfleet.base.arrays import Batch
from dreamfleet.base.keys import without_logs
from dreamfleet.errors import BadRequest
from dreamfleet.roles.protocol import ENV_ID, IS_EVAL, RESET, STEP_ID


def make_transition(env_ids: list[int], is_eval: bool, obs: Batch, acts: Batch, outs: Batch) -> Batch:
    """What happened to each environment: the observation and what the agent answered to it, with all `log/` keys."""
    rows = len(env_ids)
    header = {ENV_ID: np.array(env_ids, np.int64), IS_EVAL: np.full(rows, is_eval)}
    answer = {k: v for k, v in {**acts, **outs}.items() if k not in (RESET, STEP_ID)}
    return {**header, **obs, **answer}


def for_replay(transition: Batch) -> Batch:
    return without_logs(transition)


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


def read_rows(data: Any, *needed: str) -> tuple[Batch, np.ndarray, np.ndarray]:
    """The arrays of a batch of rows, all with a leading row; whose rows they are, and which are of evaluation.

    `needed` are arrays of numbers or flags, one for each row.
    """
    needed = (ENV_ID, IS_EVAL, *needed)
    if not isinstance(data, dict) or not data.keys() >= set(needed):
        raise BadRequest(f"a batch of transitions is a dict with {', '.join(map(repr, needed))} and more")
    batch = {key: _read_array(key, value) for key, value in data.items()}
    for key in needed:
        if batch[key].ndim != 1 or batch[key].dtype.kind not in "biuf":
            raise BadRequest(f"'{key}' is {_describe(batch[key])}, expected one number or flag for each row")
    env_ids, is_eval = batch.pop(ENV_ID), batch.pop(IS_EVAL)
    # As int64, in which the unsigned ids that are too large for it turn negative.
    if env_ids.dtype.kind not in "iu" or (env_ids.astype(np.int64) < 0).any():
        raise BadRequest(f"'{ENV_ID}' must be whole numbers from 0; got {env_ids!r}")
    for key, value in batch.items():
        if value.shape[:1] != env_ids.shape:
            raise BadRequest(f"'{key}' has shape {value.shape}, but there are {len(env_ids)} environments")
    if is_eval.shape != env_ids.shape:
        raise BadRequest(f"'{IS_EVAL}' has shape {is_eval.shape}, but there are {len(env_ids)} environments")
    return batch, env_ids, is_eval.astype(bool)


def _read_array(key: str, value: Any) -> np.ndarray:
    try:
        array = value if type(value) is np.ndarray else np.asarray(value)
    except ValueError as error:
        raise BadRequest(f"'{key}' is not an array: {error}") from error
    if array.dtype.kind in "OSUMm":
        raise BadRequest(f"'{key}' is {_describe(array)}, expected numbers")
    return array


def _describe(array: np.ndarray) -> str:
    return f"{array.dtype.name}{array.shape}"
