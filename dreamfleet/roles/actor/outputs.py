"""What a policy returns, checked where it comes from: what cannot be sent or stored would fail far from its agent."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dreamfleet.agent.contract import Batch
from dreamfleet.base.dtypes import find_dtype
from dreamfleet.errors import AgentError
from dreamfleet.roles.protocol import ENV_ID, IS_EVAL, RESET

Layout = list[tuple[str, np.dtype, tuple[int, ...]]]  # key, dtype and shape of every array


class OutputChecker:
    """Checks actions and outputs against the action space, if it is known, and against the first ones of their mode."""

    def __init__(self, act_space: Mapping[str, Any] | None = None):
        self._act_shapes = {k: tuple(space.shape) for k, space in (act_space or {}).items() if k != RESET}
        self._first: dict[tuple[str, str], dict] = {}  # by mode and name: key -> (dtype, shape of one row)
        self._last: dict[tuple[str, str], Layout] = {}  # that has passed

    def check(self, mode: str, acts: Any, outs: Any, rows: int) -> tuple[Batch, Batch]:
        """The actions and outputs of a policy call as arrays of so many rows; raises AgentError."""
        acts, outs = self._check_tree(mode, "acts", acts, rows), self._check_tree(mode, "outs", outs, rows)
        for key, value in acts.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise AgentError(f"policy ({mode}): acts['{key}'] has NaN or infinity in it")
        return acts, outs

    def _check_tree(self, mode: str, name: str, tree: Any, rows: int) -> Batch:
        if type(tree) is not dict and not isinstance(tree, Mapping):
            raise AgentError(f"policy ({mode}): {name} must be a dict of arrays; got {type(tree).__name__}")
        arrays = {k: v if type(v) is np.ndarray else _as_array(f"{name}['{k}']", v) for k, v in tree.items()}
        layout = [(key, value.dtype, value.shape) for key, value in arrays.items()]
        if layout != self._last.get((mode, name)) or (layout and layout[0][2][0] != rows):
            try:
                self._check_layout(mode, name, layout, rows)
            except AgentError as error:
                raise AgentError(f"policy ({mode}): {error}") from None
            self._last[mode, name] = layout
        return arrays

    def _check_layout(self, mode: str, name: str, layout: Layout, rows: int) -> None:
        for key, dtype, shape in layout:
            _check_array(name, key, dtype, shape, rows)
        given = {key: (dtype, shape[1:]) for key, dtype, shape in layout}
        if name == "acts":
            self._check_space(given, rows)
        first = self._first.setdefault((mode, name), given)
        if missing := sorted(first.keys() - given.keys()):
            raise AgentError(f"{name} has no {missing}, which it had in the first call")
        for key, (dtype, shape) in given.items():
            if key not in first:
                raise AgentError(f"{name}['{key}'] was not there in the first call")
            if (dtype, shape) != first[key]:
                before = _describe(first[key][0], (rows, *first[key][1]))
                raise AgentError(f"{name}['{key}'] is {_describe(dtype, (rows, *shape))}, in the first call {before}")

    def _check_space(self, given: dict, rows: int) -> None:
        if missing := sorted(self._act_shapes.keys() - given.keys()):
            raise AgentError(f"acts has no {missing}, which the action space has; it has {sorted(given)}")
        for key, shape in self._act_shapes.items():
            if given[key][1] != shape:
                expected = (rows, *shape)
                raise AgentError(f"acts['{key}'] has shape {(rows, *given[key][1])}, expected {expected} by its space")


def _check_array(name: str, key: str, dtype: np.dtype, shape: tuple[int, ...], rows: int) -> None:
    if not isinstance(key, str) or key in (ENV_ID, IS_EVAL):
        raise AgentError(f"{name} has the key {key!r}; keys are strings other than '{ENV_ID}' and '{IS_EVAL}'")
    if not shape or shape[0] != rows:
        raise AgentError(f"{name}['{key}'] has shape {shape}, expected {rows} rows, one per observation")
    try:
        find_dtype(dtype.name)
    except ValueError:
        raise AgentError(f"{name}['{key}'] has dtype {dtype}, expected numbers or bools") from None


def _as_array(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise AgentError(f"policy: {name} cannot be made an array: {error}") from None


def _describe(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    return f"{dtype.name}{shape}"
