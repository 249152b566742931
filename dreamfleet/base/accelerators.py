"""What a process of an agent computes on, and what the machine has beside it. JAX is never imported here."""

import sys
from pathlib import Path
from typing import Any

# Device files that the driver of each kind makes, and the extra that brings JAX for it.
_FILES = {
    "an NVIDIA GPU": (("/dev/nvidia0", "/dev/dxg"), "cuda12"),
    "a TPU": (("/dev/accel0", "/dev/vfio/0"), "tpu"),
    "an AMD GPU": (("/dev/kfd",), ""),
}


def find_accelerator() -> tuple[str, str]:
    """What this machine has according to its device files, and the extra for it; both empty for nothing."""
    for kind, (files, extra) in _FILES.items():
        if any(Path(file).exists() for file in files):
            return kind, extra
    return "", ""


def describe_devices() -> str:
    """What JAX computes on in this process; empty where it is not used."""
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return ""
    devices = jax.local_devices()
    kind = devices[0].device_kind
    return f"{len(devices)} x {kind}" if len(devices) > 1 else kind


def find_unused() -> tuple[str, str]:
    """An accelerator that JAX does not use, though nobody told it so, and the extra for it; both empty for none."""
    jax: Any = sys.modules.get("jax")
    if jax is None or jax.default_backend() != "cpu" or jax.config.jax_platforms:
        return "", ""
    return find_accelerator()
