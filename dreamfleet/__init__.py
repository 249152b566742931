"""The public surface of Dreamfleet, documented in `docs/api.md`; everything else may move between versions.

Every role's process imports this module, so names are loaded on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dreamfleet import errors, parallel, testing
    from dreamfleet.agent.contract import Agent, ExportingAgent, PolicyProgram, SlotAgent
    from dreamfleet.api import Run, train
    from dreamfleet.envs import wrappers
    from dreamfleet.envs.checker import check_env
    from dreamfleet.envs.contract import Env
    from dreamfleet.envs.registry import make_env
    from dreamfleet.options import AgentOptions
    from dreamfleet.replay.contract import Replay

    __version__: str

__all__ = [
    "Agent",
    "AgentOptions",
    "Env",
    "ExportingAgent",
    "PolicyProgram",
    "Replay",
    "Run",
    "SlotAgent",
    "__version__",
    "check_env",
    "errors",
    "make_env",
    "parallel",
    "testing",
    "train",
    "wrappers",
]

_SOURCES = {
    "Agent": "dreamfleet.agent.contract",
    "AgentOptions": "dreamfleet.options",
    "Env": "dreamfleet.envs.contract",
    "ExportingAgent": "dreamfleet.agent.contract",
    "PolicyProgram": "dreamfleet.agent.contract",
    "Replay": "dreamfleet.replay.contract",
    "Run": "dreamfleet.api",
    "SlotAgent": "dreamfleet.agent.contract",
    "check_env": "dreamfleet.envs.checker",
    "make_env": "dreamfleet.envs.registry",
    "train": "dreamfleet.api",
}
_MODULES = {
    "errors": "dreamfleet.errors",
    "parallel": "dreamfleet.parallel",
    "testing": "dreamfleet.testing",
    "wrappers": "dreamfleet.envs.wrappers",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _find_version()
    if name in ("train", "Run", "parallel"):
        from dreamfleet.base.platforms import check_platform

        check_platform(name)
    if name in _SOURCES:
        return getattr(importlib.import_module(_SOURCES[name]), name)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module 'dreamfleet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _find_version() -> str:
    from dreamfleet.base.extras import find_distribution

    distribution = find_distribution()
    return distribution.version if distribution else "0+unknown"
