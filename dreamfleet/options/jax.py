"""The section `jax`: devices, precision and compilation."""

from dataclasses import dataclass
from typing import Literal

from dreamfleet.options.fields import option


@dataclass(frozen=True)
class JaxOptions:
    """Where and how the agent computes."""

    platform: Literal["auto", "cpu", "gpu", "tpu"] = option("auto", "device platform", can_change=True)
    precision: Literal["auto", "float32", "bfloat16"] = option(
        "auto",
        "compute dtype (parameters stay float32): auto takes bfloat16 on GPU and TPU and float32 on CPU",
        can_change=True,
    )
    train_devices: int = option(0, "devices to train on, data-parallel; 0 takes all", at_least=0, can_change=True)
    sharding: Literal["replicated", "sharded"] = option(
        "replicated", "parameters on each training device (replicated) or spread over them (sharded)", can_change=True
    )
    policy_device: int = option(0, "device index of the policy", at_least=0, can_change=True)
    cache: str = option(
        "~/.cache/dreamfleet/jax", "directory of the compilation cache; empty disables it", can_change=True
    )
