"""Rows of several environments as `add_batch` brings them: checked, selected, and split into turns."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dreamfleet.errors import BadRequest
from dreamfleet.replay import Batch
from dreamfleet.roles.protocol import ENV_ID, IS_EVAL


class Rows(NamedTuple):
    """Row i of every array is a step of environment `env_ids[i]`."""

    batch: Batch
    env_ids: list[int]

    def select(self, mask: np.ndarray) -> "Rows":
        if mask.all():
            return self
        env_ids = [env_id for env_id, is_in in zip(self.env_ids, mask, strict=True) if is_in]
        return Rows({k: v[mask] for k, v in self.batch.items()}, env_ids)

    def turns(self) -> Iterator["Rows"]:
        """Parts of the rows, in order, in which every environment is there once."""
        start, seen = 0, set()
        for i, env_id in enumerate(self.env_ids):
            if env_id in seen:
                yield self._part(start, i)
                start, seen = i, set()
            seen.add(env_id)
        yield self._part(start, len(self.env_ids)) if start else self

    def _part(self, start: int, end: int) -> "Rows":
        return Rows({k: v[start:end] for k, v in self.batch.items()}, self.env_ids[start:end])


def read_rows(data: Any) -> tuple[Rows, np.ndarray]:
    """The rows in the data of `add_batch`, and which of them are of evaluation."""
    if not isinstance(data, dict) or not {ENV_ID, IS_EVAL, "is_first"} <= data.keys():
        raise BadRequest(f"a batch of transitions is a dict with '{ENV_ID}', '{IS_EVAL}', 'is_first' and more")
    batch = {k: np.asarray(v) for k, v in data.items()}
    env_ids, is_eval = batch.pop(ENV_ID), batch.pop(IS_EVAL)
    if env_ids.ndim != 1 or env_ids.dtype.kind not in "iu" or is_eval.shape != env_ids.shape:
        raise BadRequest(f"'{ENV_ID}' {env_ids.dtype}{env_ids.shape} and '{IS_EVAL}' {is_eval.shape} must be lists")
    for key, value in batch.items():
        if value.shape[:1] != env_ids.shape:
            raise BadRequest(f"'{key}' has shape {value.shape}, but there are {len(env_ids)} environments")
    return Rows(batch, env_ids.tolist()), is_eval.astype(bool)
