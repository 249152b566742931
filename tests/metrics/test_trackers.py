"""Weights & Biases and MLflow, each with its real library and without a network: what was sent is read back."""

import json
import logging
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from dreamfleet.metrics import make_writers
from dreamfleet.metrics.tracker import CAPACITY, Tracker
from tests.fleet import DEADLINE_S

# What the libraries themselves cause.
pytestmark = pytest.mark.filterwarnings("ignore")

IMAGE = np.random.default_rng(0).integers(0, 256, (6, 7, 3), np.uint8)
SUMMARIES = [
    (3, "train/loss", np.asarray(0.5)),
    (3, "train/strange%key", np.asarray(2)),
    (3, "train/nan", np.asarray(np.nan)),
    (3, "vector", np.array([1.0, 2.0, 6.0])),
    (4, "image", IMAGE),
    (4, "video", np.stack([IMAGE, IMAGE[::-1]])),
    (4, "note", "some text"),
    (4, "odd", np.zeros((4, 4, 7))),
    (5, "episode/score", np.asarray(1.0)),
    (5, "episode/score", np.asarray(2.0)),
]


CLOSE_S = DEADLINE_S  # libraries are slow to import on a busy machine


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_PROJECT", "WANDB_NAME", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "run").mkdir()


def send(name, logdir, summaries):
    """One life of a logger."""
    *_, writer = make_writers([name], logdir, 15, {"run.envs": 4, "task": "dummy_vector"}, CLOSE_S)
    writer(summaries)
    writer.wait()


def read_wandb(path):
    """The records of an offline file: a log of blocks in the format of LevelDB."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, parts, records = path.read_bytes(), 7, b"", []
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:  # the rest of a block that no header fits in
            position += 32768 - position % 32768
        _, length, kind = struct.unpack_from("<IHB", data, position)
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            records.append(Record.FromString(parts))
            parts = b""
    return records


def read_history(path):
    """The rows of an offline file; entries of a value that is a dict come one by one."""
    rows = []
    for record in read_wandb(path):
        if record.HasField("history"):
            rows.append({})
            for item in record.history.item:
                name, *inner = item.nested_key or [item.key]
                value = json.loads(item.value_json)
                rows[-1][name] = {**rows[-1].get(name, {}), inner[0]: value} if inner else value
    return rows


def test_wandb_gets_every_kind_of_value(tmp_path):
    logdir = tmp_path / "run"
    send("wandb", logdir, SUMMARIES)
    (path,) = logdir.glob("wandb/offline-run-*/run-*.wandb")
    first, second, third, fourth = read_history(path)
    assert (first["step"], first["train/loss"], first["train/strange%key"]) == (3, 0.5, 2)
    assert first["vector"]["_type"] == "histogram" and sum(first["vector"]["values"]) == 3
    assert (second["step"], second["note"]) == (4, "some text")
    assert (second["image"]["format"], second["image"]["height"], second["image"]["width"]) == ("png", 6, 7)
    assert second["video"]["_type"] == "video-file" and second["video"]["path"].endswith(".gif")
    assert (path.parent / "files" / second["video"]["path"]).read_bytes().startswith(b"GIF89a")
    assert [third["episode/score"], fourth["episode/score"]] == [1, 2], "two episodes of one step"
    run = next(record.run for record in read_wandb(path) if record.HasField("run"))
    assert (run.project, run.display_name) == ("dreamfleet", "run")
    assert {item.key: json.loads(item.value_json) for item in run.config.update}["run.envs"] == 4
    metrics = [record.metric for record in read_wandb(path) if record.HasField("metric")]
    assert any(metric.step_metric == "step" for metric in metrics), "steps of the environment are the axis"


def test_wandb_goes_on_with_the_run(tmp_path):
    logdir = tmp_path / "run"
    for step in (3, 2):  # back to a checkpoint
        send("wandb", logdir, [(step, "a", np.asarray(step))])
    paths = sorted(logdir.glob("wandb/offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime)
    assert len({path.name for path in paths}) == 1, "the id of the run is kept"
    assert [row["step"] for path in paths for row in read_history(path)][-1] == 2


@pytest.mark.distributed
def test_wandb_gets_the_last_metrics_of_a_fleet(tmp_path):
    words = ("--preset", "debug", "random", "--task", "dummy_image", "--steps", "300", "--run.log_every", "100")
    command = [sys.executable, "-m", "dreamfleet", "train", *words, "--logger.outputs", "wandb", "tensorboard"]
    result = subprocess.run(
        [*command, "--logdir", tmp_path / "run"], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "[logger] wandb: offline; send it with: wandb sync" in result.stdout
    (path,) = tmp_path.glob("run/wandb/offline-run-*/run-*.wandb")
    rows = read_history(path)
    assert sum("episode/score" in row for row in rows) > 10
    assert rows[-1]["step"] == rows[-1]["frames"] >= 300, "written only when the run was over"
    assert any("episode/video" in row for row in rows) and list((tmp_path / "run").glob("events.*"))
    assert read_wandb(path)[-1].HasField("exit")


def test_mlflow_gets_every_kind_of_value(tmp_path):
    from mlflow.tracking import MlflowClient

    logdir = tmp_path / "run"
    send("mlflow", logdir, SUMMARIES)
    client = MlflowClient(f"sqlite:///{logdir}/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("dreamfleet")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert run.data.params == {"run.envs": "4", "task": "dummy_vector"}
    assert run.data.metrics["train/loss"] == 0.5 and run.data.metrics["train/strange_key"] == 2
    assert [run.data.metrics[f"vector/{end}"] for end in ("min", "mean", "max")] == [1, 3, 6]
    scores = client.get_metric_history(run.info.run_id, "episode/score")
    assert [(score.step, score.value) for score in scores] == [(5, 1), (5, 2)]
    artifacts = logdir / "mlflow" / "artifacts" / run.info.run_id / "artifacts"
    assert (artifacts / "image" / "000000000004.png").read_bytes().startswith(b"\x89PNG")
    assert (artifacts / "video" / "000000000004.gif").read_bytes().startswith(b"GIF89a")
    assert (artifacts / "note" / "000000000004.txt").read_text() == "some text"


def test_mlflow_goes_on_with_the_run_in_a_store_of_files(tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    uri = (tmp_path / "files").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    for step in (1, 2):
        send("mlflow", tmp_path / "run", [(step, "a", np.asarray(step))])
    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "a")] == [1, 2]
    assert not (tmp_path / "run" / "mlflow" / "mlflow.db").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "others").as_uri())
    send("mlflow", tmp_path / "run", [(3, "a", np.asarray(3))])  # which does not know the run
    client = MlflowClient((tmp_path / "others").as_uri())
    assert len(client.search_runs([client.get_experiment_by_name("mine").experiment_id])) == 1


class Service:
    """Takes metrics when it is let; refuses those of step 13."""

    def __init__(self):
        self.steps, self.is_closed, self.may_go = [], False, threading.Event()
        self.has_begun = threading.Event()

    def write(self, summaries):
        self.has_begun.set()
        assert self.may_go.wait(60)
        if summaries[0][0] == 13:
            raise ConnectionError("unlucky")
        self.steps += [step for step, *_ in summaries]

    def close(self):
        self.is_closed = True


def test_a_service_that_is_away_stops_nobody(caplog):
    def connect():
        raise ConnectionError("no route to host")

    tracks = Tracker("tracks", connect, CLOSE_S)
    for step in range(3 * CAPACITY):
        tracks([(step, "a", np.asarray(1))])
    tracks.wait()
    assert caplog.text.count("tracks gets no metrics, metrics.jsonl has them: ConnectionError: no route to host") == 1


def test_a_batch_that_is_refused_is_lost_alone(caplog):
    service = Service()
    service.may_go.set()
    tracks = Tracker("tracks", lambda: service, CLOSE_S)
    for step in (12, 13, 14):
        tracks([(step, "a", np.asarray(1))])
    tracks.wait()
    assert service.steps == [12, 14] and service.is_closed
    assert "tracks did not take a batch of metrics: ConnectionError: unlucky" in caplog.text


def test_a_slow_service_makes_nobody_wait(caplog):
    caplog.set_level(logging.INFO, "dreamfleet")
    service = Service()
    tracks = Tracker("tracks", lambda: service, CLOSE_S)
    tracks([(0, "a", np.asarray(1))])
    assert service.has_begun.wait(60)
    for step in range(100, 100 + CAPACITY + 5):
        tracks([(step, "a", np.asarray(1))])
    assert caplog.text.count("behind: dropping more until it catches up") == 1
    service.may_go.set()
    tracks.wait()
    assert service.steps == [0, *range(100, 100 + CAPACITY)]
    assert "tracks missed 5 batches of metrics" in caplog.text
