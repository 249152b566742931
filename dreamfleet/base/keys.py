"""Which observations are only logged, as environments, agents, replay and logger must agree."""

from collections.abc import Mapping
from typing import TypeVar

LOG_PREFIX = "log/"  # of observations that the logger gets, and neither the agent nor the replay
RUN_OVER = f"{LOG_PREFIX}run_over"  # not 0: a training environment that says so ends the run

V = TypeVar("V")


def is_logged(key: str) -> bool:
    return key.startswith(LOG_PREFIX)


def without_logs(values: Mapping[str, V]) -> dict[str, V]:
    """What agent and replay get of observations, or of their spaces."""
    return {key: value for key, value in values.items() if not key.startswith(LOG_PREFIX)}
