"""The section `replay`: the replay buffer and how sequences are sampled from it."""

import math
from dataclasses import dataclass
from typing import Literal

from dreamfleet.options.fields import option


@dataclass(frozen=True)
class StorageOptions:
    """What is kept, and where."""

    capacity: int = option(0, "steps to keep; 0 keeps run.steps, up to 5e6 and half of the free space", at_least=0)
    storage: Literal["disk", "ram"] = option("disk", "disk (survives crashes) or ram (lost with the replay process)")
    directory: str = option("", "directory of the steps on disk; empty means LOGDIR/replay")
    sync_every: float = option(
        30.0, "seconds between fsyncs; 0 leaves it to the operating system", at_least=0, can_change=True
    )
    online: bool = option(True, "online queue: sample new sequences first, once")


@dataclass(frozen=True)
class SamplingOptions:
    """How sequences are chosen: the weight of each rule, and the rules' parameters."""

    uniform: float = option(1.0, "weight of uniform sampling", at_least=0)
    recency: float = option(0.0, "weight of sampling by recency", at_least=0)
    priority: float = option(0.0, "weight of sampling by priority", at_least=0)
    recency_exponent: float = option(1.0, "recency: probability falls with age to this power", at_least=0)
    priority_exponent: float = option(0.8, "priority exponent (alpha)", at_least=0)
    priority_initial: float = option(
        math.inf, "priority of new steps; inf samples them before all others", at_least=0, can_be_infinite=True
    )
    priority_max: float = option(
        0.5, "weight of the maximum in a sequence's priority, the rest is the mean", at_least=0, at_most=1
    )
    priority_zero: bool = option(True, "set the priority of sampled steps to 0 until the agent updates it")


@dataclass(frozen=True)
class MixOptions:
    """Steps of another store in the batches of a run."""

    mix: str = option("", "log directory or store whose steps are mixed with fresh ones; it is only read")
    mix_share: float = option(0.5, "share of each batch that is from replay.mix", at_least=0, at_most=1)


@dataclass(frozen=True)
class ReplayOptions(MixOptions, SamplingOptions, StorageOptions):
    """The replay buffer."""
