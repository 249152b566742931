"""Sends metrics to Weights & Biases; one of the logger's outputs.

Its own variables choose where they go: WANDB_PROJECT, WANDB_ENTITY, WANDB_NAME, WANDB_MODE=offline and so on.
"""

import io
import logging
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from dreamfleet.metrics.values import Summary, Value, encode_gif, kind_of, to_pixels

log = logging.getLogger("dreamfleet.metrics")


class WandbService:
    """One run of Weights & Biases, which a run that is resumed goes on with."""

    def __init__(self, logdir: Path, fps: float, settings: Mapping[str, object]):
        import wandb

        self._fps = fps
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "dreamfleet"),
            name=os.environ.get("WANDB_NAME", logdir.name),
            id=_keep_id(logdir / "wandb" / "id"),
            resume="allow",
            dir=logdir,
            config=dict(settings),
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )
        # Steps may go back when a run is resumed: they are an axis of ours rather than the count of its calls.
        self._run.define_metric("*", step_metric="step")
        directory = Path(self._run.dir).parent
        log.info("wandb: %s", f"offline; send it with: wandb sync {directory}" if self._run.offline else self._run.url)

    def write(self, summaries: Iterable[Summary]) -> None:
        row: dict[str, object] = {}
        for step, name, value in summaries:
            if row and (row["step"] != step or name in row):  # the next step, or the next episode of the same one
                self._run.log(row)
                row = {}
            shown = self._show(value)
            if shown is not None:
                row |= {"step": step, name: shown}
        if row:
            self._run.log(row)

    def close(self) -> None:
        import wandb

        self._run.finish()
        wandb.teardown()  # the service may still be writing the end of the file when the run is finished

    def _show(self, value: Value) -> object:
        import wandb

        kind = kind_of(value)
        if isinstance(value, str):
            return value
        if kind == "scalar":
            return value.item()
        if kind == "vector":
            return wandb.Histogram(value.tolist()) if value.size else None
        if kind == "image":
            return wandb.Image(to_pixels(value))
        if kind == "video":
            return wandb.Video(io.BytesIO(encode_gif(value, self._fps)), format="gif")
        return None


def _keep_id(path: Path) -> str:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(uuid.uuid4().hex[:12])
    return path.read_text()
