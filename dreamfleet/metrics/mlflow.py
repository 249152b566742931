"""Sends metrics to MLflow; one of the logger's outputs.

MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME choose where they go; without them to a database in the log directory.
"""

import logging
import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from dreamfleet.metrics.values import Summary, encode_gif, encode_png, kind_of

log = logging.getLogger("dreamfleet.metrics")

_BATCH = 500  # metrics in a request; the service takes at most 1000
_PARAMS = 100  # settings in a request, the most that the service takes
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")


class MlflowService:
    """One run of MLflow, which a run that is resumed goes on with."""

    def __init__(self, logdir: Path, fps: float, settings: Mapping[str, object]):
        from mlflow.tracking import MlflowClient

        self._fps = fps
        self._directory = logdir / "mlflow"
        self._directory.mkdir(parents=True, exist_ok=True)
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = MlflowClient(uri or f"sqlite:///{self._directory / 'mlflow.db'}")
        artifacts = None if uri else (self._directory / "artifacts").as_uri()
        self._run_id = self._resume() or self._start(logdir.name, artifacts, settings)
        log.info("mlflow: run %s at %s", self._run_id, self._client.tracking_uri)

    def write(self, summaries: Iterable[Summary]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics: list = []
        for step, name, value in summaries:
            name = _NOT_IN_NAMES.sub("_", name)
            numbers = _numbers(name, value)
            metrics += [Metric(key, number, now, step) for key, number in numbers.items()]
            if not numbers:
                self._keep_file(step, name, value)
        for start in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + _BATCH])

    def close(self) -> None:
        self._client.set_terminated(self._run_id)

    def _resume(self) -> str | None:
        """The run that this log directory had, unless the service in use does not know it."""
        from mlflow.exceptions import MlflowException

        try:
            run_id = (self._directory / "run_id").read_text()
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        except (OSError, MlflowException):
            return None

    def _start(self, name: str, artifacts: str | None, settings: Mapping[str, object]) -> str:
        from mlflow.entities import Param

        experiment = self._find_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "dreamfleet"), artifacts)
        run_id = self._client.create_run(experiment, run_name=name).info.run_id
        params = [Param(key, str(value)) for key, value in settings.items()]
        for start in range(0, len(params), _PARAMS):
            self._client.log_batch(run_id, params=params[start : start + _PARAMS])
        (self._directory / "run_id").write_text(run_id)
        return run_id

    def _find_experiment(self, name: str, artifacts: str | None) -> str:
        from mlflow.exceptions import MlflowException

        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return self._client.create_experiment(name, artifacts)
            except MlflowException:  # another run was quicker
                experiment = self._client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        return experiment.experiment_id

    def _keep_file(self, step: int, name: str, value: np.ndarray | str) -> None:
        """Text, images and videos are files of the run: `NAME/STEP.png`."""
        kind = kind_of(value)
        if isinstance(value, str):
            suffix, content = "txt", value.encode()
        elif kind == "image":
            suffix, content = "png", encode_png(value)
        elif kind == "video":
            suffix, content = "gif", encode_gif(value, self._fps)
        else:
            return
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / f"{step:012d}.{suffix}"
            path.write_bytes(content)
            self._client.log_artifact(self._run_id, str(path), name)


def _numbers(name: str, value: np.ndarray | str) -> dict[str, float]:
    """A scalar as it is; of a vector, as MLflow has no histograms, the least, the mean and the greatest."""
    kind = kind_of(value)
    if isinstance(value, str) or kind not in ("scalar", "vector"):
        return {}
    if kind == "scalar":
        return {name: float(value)}
    if not value.size:
        return {}
    return {
        f"{name}/{end}": float(reduce(value)) for end, reduce in (("min", np.min), ("mean", np.mean), ("max", np.max))
    }
