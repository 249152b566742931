"""Look-alikes of parts written for danijar/dreamerv3: each fails at once, in its process, when a rule is broken.

A fleet that runs them runs such parts unchanged. They stand on CountingEnv, so that the rows are checked as well.
"""

import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import elements
import numpy as np

from dreamfleet.agent.contract import Batch
from dreamfleet.testing.counting import CountingAgent, check_sequences

POLICY_DEVICES = 2  # that the policy's batch is divided among
MODES = ("train", "report", "eval")


class GuestWrapper:
    """An environment wrapper that passes on every attribute, and has its own idea of how to say that there is none."""

    def __init__(self, env: Any):
        self.env = env

    def __len__(self) -> int:
        return len(self.env)

    def __bool__(self) -> bool:
        return bool(self.env)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            try:
                return getattr(self.env, name)
            except AttributeError:
                pass
        raise ValueError(name)


class GuestStream:
    """Reads its source ahead in a thread in which any exception ends the process; may be iterated over once."""

    def __init__(self, source: Iterable[Batch]):
        import portal  # here, since environments and replays are made without it

        self._source: Any = iter(source)
        self._state = self._source.save()
        self._requests = threading.Semaphore(1)
        self._batches: queue.Queue = queue.Queue()
        self._thread = portal.Thread(self._read)
        self._has_started = False

    def __iter__(self) -> "GuestStream":
        assert not self._has_started, "the stream is iterated over twice"
        self._has_started = True
        self._thread.start()
        return self

    def __next__(self) -> Batch:
        assert self._has_started, "the stream was not iterated over"
        batch, self._state = self._batches.get()
        self._requests.release()
        return batch

    def save(self) -> Any:
        return self._state

    def load(self, data: Any) -> None:
        self._source.load(data)

    def _read(self) -> None:
        while True:
            self._requests.acquire()
            batch = next(self._source)
            self._batches.put((batch, self._source.save()))


class GuestAgent(CountingAgent):
    """Insists on the order and the numbers of calls that the agents of danijar/dreamerv3 rely on.

    Its carries are lists with one entry per environment. `train` returns what the call before computed. `calls` are
    the names of all calls but `policy`, in order, for whoever has the agent at hand.
    """

    def __init__(
        self,
        *,
        actor_batch: int,
        batch_size: int,
        report_batches: int = 1,
        consec_report: int = 1,
        policy_modes: tuple[str, ...] = ("train",),
        context: int = 1,
    ):
        super().__init__("list", context=context)
        assert actor_batch % POLICY_DEVICES == 0, f"{actor_batch} rows cannot be divided among the devices"
        self.calls: list[str] = []
        self._actor_batch, self._batch_size = actor_batch, batch_size
        self._reports = consec_report * report_batches
        self._policy_modes = policy_modes
        self._has_trained = False
        self._report_calls: int | None = None  # since the last `init_report`
        self._pending: tuple[dict, dict] = ({}, {})

    def init_policy(self, batch_size: int) -> Any:
        assert "init_policy" not in self.calls, "init_policy is called twice"
        assert batch_size == self._actor_batch, f"init_policy is called with {batch_size}, not {self._actor_batch}"
        self.calls.append("init_policy")
        return super().init_policy(batch_size)

    def stream(self, source: Iterable[Batch]) -> Any:
        assert not self._has_trained and self.calls.count("stream") < len(MODES), self.calls
        self.calls.append("stream")
        return GuestStream(source)

    def init_train(self, batch_size: int) -> Any:
        assert "init_train" not in self.calls, "init_train is called twice"
        assert batch_size == self._batch_size, batch_size
        self.calls.append("init_train")
        return super().init_train(batch_size)

    def init_report(self, batch_size: int) -> Any:
        assert self._report_calls in (None, self._reports), f"{self._report_calls} reports, not {self._reports}"
        assert batch_size == self._batch_size, batch_size
        self._report_calls = 0
        self.calls.append("init_report")
        return super().init_report(batch_size)

    def policy(self, carry: Any, obs: Batch, mode: str = "train") -> tuple[Any, Batch, Batch]:
        assert mode in self._policy_modes, f"policy is called in mode {mode}, compiled for {self._policy_modes}"
        assert len(obs["is_first"]) % self._actor_batch == 0, f"policy has {len(obs['is_first'])} rows"
        return super().policy(carry, obs, mode)

    def train(self, carry: Any, data: Batch) -> tuple[Any, dict, dict]:
        assert self.calls.count("stream") == len(MODES), f"the streams do not exist from the start: {self.calls}"
        assert len(data["is_first"]) == self._batch_size, data["is_first"].shape
        self._has_trained = True
        carry, outs, _ = super().train(carry, data)
        # A mean tells the two numbers apart from any other reduction of one key.
        metrics = {"odd/max": np.float32(self.trained % 2), "vector": np.full(2, self.trained, np.float32)}
        (last_outs, last_metrics), self._pending = self._pending, (outs, metrics)
        return carry, last_outs, last_metrics

    def report(self, carry: Any, data: Batch) -> tuple[Any, dict]:
        assert self._report_calls is not None, "report is called before init_report"
        self._report_calls += 1
        check_sequences(data)
        return carry, {"frames": np.zeros((1, 4, 4, 3), np.uint8)}

    def save(self) -> dict:
        return {"params": {"weights": np.full(3, self.trained, np.float32)}, "counters": {"updates": self.trained}}

    def load(self, data: dict, regex: str | None = None) -> None:
        assert "init_train" not in self.calls, "load is called after init_train"
        self.calls.append("load")
        self.trained = int(data["counters"]["updates"])
        assert (data["params"]["weights"] == self.trained).all(), data


class GuestReplay:
    """Keeps sequences of rows, gives new ones out first, and saves what it holds in a directory of its own.

    `save` returns nothing, and `load` takes it.
    """

    def __init__(self, length: int, directory: str | Path, capacity: int = 10_000):
        self.length = length
        self.capacity = capacity
        self._directory = Path(directory)
        self._streams: dict[int, int] = {}  # by environment, in this life
        self._rows: dict[int, list[dict]] = {}  # by stream
        self._items: deque[list[dict]] = deque(maxlen=capacity)
        self._online: deque[list[dict]] = deque()
        self._count = 0
        self._rng = np.random.default_rng(0)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, step: dict, worker: int = 0) -> None:
        with self._lock:
            self._count += 1
            step_id = np.frombuffer(self._count.to_bytes(20, "big"), np.uint8)
            stream = self._streams.setdefault(worker, len(self._rows))
            rows = self._rows.setdefault(stream, [])
            if rows and step["is_first"]:
                rows[-1]["is_last"] = np.bool_(True)  # the episode before was left
            rows.append({**{key: np.asarray(value) for key, value in step.items()}, "stepid": step_id})
            self._insert(stream)

    def sample(self, batch: int, mode: str = "train") -> Batch:
        assert mode in MODES, mode
        with self._lock:
            items = [self._draw(mode) for _ in range(batch)]
            data = {key: np.stack([np.stack([row[key] for row in item]) for item in items]) for key in items[0][0]}
        data["is_first"][:, 0] = True
        return data

    def update(self, data: Batch) -> None:
        assert data.pop("stepid").ndim == 3
        assert set(data) <= {"echo", "priority"}, list(data)

    def stats(self) -> dict[str, float]:
        return {"items": len(self._items)}

    def save(self) -> None:
        with self._lock:
            self._directory.mkdir(parents=True, exist_ok=True)
            rows = [{**row, "stream": stream} for stream, rows in self._rows.items() for row in rows]
            arrays = {key: np.stack([row[key] for row in rows]) for key in rows[0]} if rows else {}
            np.savez(self._directory / "draft.npz", allow_pickle=False, **arrays)
            (self._directory / "draft.npz").rename(self._directory / "rows.npz")

    def load(self, data: None = None) -> None:
        assert data is None, data
        path = self._directory / "rows.npz"
        if not path.exists():
            return
        with np.load(path) as file:
            arrays = {key: file[key] for key in file.files}
        streams = arrays.pop("stream", np.zeros(0, int)).tolist()
        with self._lock:
            self._count = len(streams)
            for i, stream in enumerate(streams):
                self._rows.setdefault(stream, []).append({key: value[i] for key, value in arrays.items()})
                self._insert(stream)
            self._online.clear()

    def _insert(self, stream: int) -> None:
        rows = self._rows[stream]
        if len(rows) >= self.length:
            self._items.append(rows[-self.length :])
            if len(rows) % self.length == 0:
                self._online.append(self._items[-1])

    def _draw(self, mode: str) -> list[dict]:
        if mode == "train" and self._online:
            return self._online.popleft()
        return self._items[self._rng.integers(len(self._items))]


class GuestBatches:
    """Cuts sequences into `consec` chunks, each with the `context` rows before it; may be iterated over once."""

    def __init__(self, replay: Any, mode: str, batch_size: int, length: int, consec: int = 1, context: int = 1):
        self._sample: Callable[[], Batch] = lambda: replay.sample(batch_size, mode)
        self._length, self._consec, self._context = length, consec, context
        self._index = 0
        self._current: Batch = {}
        self._has_started = False

    def __iter__(self) -> "GuestBatches":
        assert not self._has_started, "the stream is iterated over twice"
        self._has_started = True
        return self

    def __next__(self) -> Batch:
        index, self._index = self._index, (self._index + 1) % self._consec
        if not index:
            self._current = self._sample()
        start = index * self._length
        chunk = {key: value[:, start : start + self._length + self._context] for key, value in self._current.items()}
        return {**chunk, "consec": np.full(chunk["is_first"].shape, index, np.int32)}

    def save(self) -> dict:
        return {"index": self._index}

    def load(self, data: dict) -> None:
        self._index = data["index"]


class GuestLogger:
    """Writes a line of JSON for each step with one value per key; of arrays, it writes their shape."""

    def __init__(self, path: str | Path):
        self.step = elements.Counter()
        self._path = Path(path)
        self._values: list[tuple[int, str, Any]] = []

    def add(self, mapping: dict, prefix: str | None = None) -> None:
        assert len(mapping) <= 1000, len(mapping)
        for name, value in mapping.items():
            array = np.asarray(value)
            assert array.ndim <= 4 and len(name) <= 200, (name, array.shape)
            shown = value if isinstance(value, str) else list(array.shape) if array.ndim else float(array)
            self._values.append((int(self.step), f"{prefix}/{name}" if prefix else name, shown))

    def write(self) -> None:
        lines: dict[int, dict] = {}
        for step, name, value in self._values:
            lines.setdefault(step, {})[name] = value
        self._values.clear()
        with self._path.open("a") as file:
            file.writelines(json.dumps({"step": step, **line}) + "\n" for step, line in lines.items())
