"""What a role does every so often: its metrics, and whatever else is due."""

import contextlib
import dataclasses
import time
from collections.abc import Callable

import elements

from dreamfleet.errors import DreamfleetError
from dreamfleet.options import RoleOptions
from dreamfleet.roles.protocol import ADD
from dreamfleet.roles.wiring import connect


class Every:
    """True once every `seconds`, for the first time after as many; never for 0."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._next = time.monotonic() + seconds

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._seconds <= 0 or now < self._next:
            return False
        self._next = now + self._seconds
        return True


class StatsSender:
    """Sends a role's statistics every `log_every` seconds; a logger that is away never holds the role up."""

    def __init__(self, options: RoleOptions, name: str, prefix: str, is_on: bool = True):
        # A replay that joins from elsewhere need not know where the logger is.
        has_logger = is_on and "{auto}" not in options.logger_addr
        self._client = connect(options, "logger", f"{name}-reports", me=prefix, max_inflight=4) if has_logger else None
        self._prefix = prefix
        self._every_s = options.log_every
        self._next = time.monotonic() + self._every_s
        self._usage = make_usage(options, has_devices=prefix == "actor")

    def is_due(self) -> bool:
        return self._client is not None and time.monotonic() >= self._next

    def send(self, stats: dict) -> None:
        """Sends `stats` under the role's prefix, with the process's own use of resources."""
        self._next = time.monotonic() + self._every_s
        if not self._client:
            return
        stats = {**prefixed("logger", self._client.stats()), **stats, **prefixed("usage", self._usage())}
        metrics = prefixed(self._prefix, stats)
        with contextlib.suppress(DreamfleetError):  # away or behind: these figures are not worth waiting for
            self._client.call(ADD, metrics, repeat=False, deadline_s=0.0)

    def close(self) -> None:
        if self._client:
            self._client.close()


def make_usage(options: RoleOptions, has_devices: bool = False) -> Callable[[], dict]:
    """What tells how much of the machine this process uses, as `run.usage` asks for.

    nvidia-smi, which is slow and speaks for the whole machine, is asked only where the devices are: by the agent.
    """
    wanted = dataclasses.asdict(options.usage)
    wanted["nvsmi"] &= has_devices
    return elements.Usage(**wanted).stats if any(wanted.values()) else dict


def prefixed(prefix: str, metrics: dict) -> dict:
    """The metrics, their names put below a prefix."""
    return {f"{prefix}/{k}": v for k, v in metrics.items()}
