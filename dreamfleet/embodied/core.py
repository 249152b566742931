"""The classes that environments and agents written for the reference are derived from."""

from typing import Any


class Env:
    """An environment: `obs_space`, `act_space` and `step` are its own; see `dreamfleet.Env` for what they are."""

    def close(self) -> None:
        pass


class Agent:
    """An agent: all methods of `dreamfleet.Agent` are its own."""

    def __init__(self, obs_space: dict, act_space: dict, config: Any = None):
        pass
