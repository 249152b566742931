"""The section `logger`: where metrics go."""

from dataclasses import dataclass
from typing import Literal

from dreamfleet.options.fields import option

Output = Literal["jsonl", "tensorboard", "wandb", "mlflow"]
Names = Literal["dreamfleet", "reference", "both"]


@dataclass(frozen=True)
class LoggerOptions:
    """What the logger writes."""

    outputs: tuple[Output, ...] = option(
        ("jsonl",), "writers: jsonl (always on), tensorboard, wandb, mlflow", can_change=True
    )
    names: Names = option("dreamfleet", "names of metrics: ours, those of danijar/dreamerv3, or both", can_change=True)
    fps: int = option(15, "frames per second of logged videos", at_least=1, can_change=True)
    reports: int = option(
        10, "videos and open-loop predictions of each kind kept in LOGDIR/reports", at_least=0, can_change=True
    )
