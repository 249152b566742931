"""Stops training when a loss is no longer a number, and keeps the batch that did it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dreamfleet.errors import NonFiniteLoss

PREFIX = "loss/"


def check_finite(metrics: Mapping[str, np.ndarray], data: Mapping[str, np.ndarray], logdir: Path) -> None:
    """Raises NonFiniteLoss if a loss among the metrics is not finite, with the batch saved in the log directory."""
    losses = {key.removeprefix(PREFIX): float(value) for key, value in metrics.items() if key.startswith(PREFIX)}
    total = losses.pop("total")
    bad = [name for name, value in losses.items() if not np.isfinite(value)]
    if not bad and np.isfinite(total):
        return
    path = logdir / "bad_batch.npz"
    logdir.mkdir(parents=True, exist_ok=True)
    arrays: Any = {key.replace("/", "."): np.asarray(value) for key, value in data.items()}
    np.savez(path, **arrays)
    update = int(metrics["updates/last"])
    names = ", ".join(f"{name}={losses[name]}" for name in bad) or f"total={total}"
    raise NonFiniteLoss(
        f"the loss {(bad or ['total'])[0]} is not finite at update {update} ({names}); its batch is in {path}, and "
        "the checkpoints are from before: look for extreme values in the observations, or start a run from the last "
        "checkpoint (run.from_checkpoint) with a lower dreamer.learning_rate"
    )
