"""Transitions of environments as they come in messages, checked where they arrive: in replay and logger."""

from typing import Any

import numpy as np

from dreamfleet.base.arrays import Batch
from dreamfleet.errors import BadRequest
from dreamfleet.roles.protocol import ENV_ID, IS_EVAL


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
