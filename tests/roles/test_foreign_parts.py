"""Agents, replays, streams and loggers written by others against only the documented methods run unchanged."""

import functools
import queue
import threading
from pathlib import Path

import numpy as np
import pytest

from dreamfleet import lifecycle
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import RunFailed
from dreamfleet.launch.serial import serial
from dreamfleet.replay import consecutive_batches
from dreamfleet.testing import CountingAgent
from dreamfleet.testing.guests import GuestAgent
from tests.fleet import make_args, make_factories, running_fleet

pytestmark = pytest.mark.distributed


class MutatingAgent(CountingAgent):
    """Keeps its carry in objects that it changes in place, changes its data, and streams from a thread of its own."""

    def init_policy(self, batch_size):
        return ({"memory": [{"steps": []} for _ in range(batch_size)]}, ())

    def policy(self, carry, obs, mode="train"):
        memories, empty = carry[0]["memory"], carry[1]
        assert empty == () and len(memories) == len(obs["step"])
        for memory, step, is_first in zip(memories, obs["step"], obs["is_first"], strict=True):
            if is_first:
                memory["steps"].clear()
            assert memory["steps"] == list(range(step)), (memory, step)
            memory["steps"].append(int(step))
        _, acts, outs = super().policy((), obs, mode)
        return ({"memory": memories}, ()), acts, outs

    def train(self, carry, data):
        carry, outs, _ = super().train(carry, data)
        data.pop("action")
        data["reward"] *= 0
        return carry, outs if self.trained % 2 else {}, {}

    def stream(self, source):
        batches = queue.Queue(maxsize=2)

        def fetch():
            for batch in source:
                batches.put(batch)
            batches.put(None)

        threading.Thread(target=fetch, daemon=True).start()
        return iter(batches.get, None)


class ListReplay:
    """Only the documented methods, in the plainest way: whole sequences in lists, no `add_many`."""

    def __init__(self, length):
        self.length = length
        self._streams = {}
        self._items = []
        self._lock = threading.Lock()
        self._rng = np.random.default_rng(0)
        self._count = 0

    def __len__(self):
        return len(self._items)

    def add(self, step, worker):
        with self._lock:
            rows = self._streams.setdefault(worker, [])
            if rows and step["is_first"]:
                rows[-1]["is_last"] = np.bool_(True)
            self._count += 1
            rows.append({**step, "stepid": np.frombuffer(self._count.to_bytes(20, "big"), np.uint8)})
            if len(rows) >= self.length:
                self._items.append(rows[-self.length :])

    def sample(self, batch, mode):
        with self._lock:
            items = [self._items[i] for i in self._rng.integers(0, len(self._items), batch)]
            data = {k: np.stack([np.stack([row[k] for row in item]) for item in items]) for k in items[0][0]}
        data["is_first"][:, 0] = True
        return data

    def update(self, data):
        data.pop("stepid")
        data.pop("echo")
        assert not data, list(data)

    def save(self):
        return {"count": self._count}

    def load(self, data):
        self._count = data["count"]

    def stats(self):
        return {"items": len(self)}


class Batches:
    """An iterable that is no iterator."""

    def __init__(self, replay, mode, batch_size, length):
        self._make = lambda: {k: v[:, :length] for k, v in replay.sample(batch_size, mode).items()}

    def __iter__(self):
        while True:
            batch = self._make()
            yield {**batch, "consec": np.zeros(batch["step"].shape, np.int32)}


class FileLogger:
    """A logger that knows `add` and `write` and nothing else."""

    def __init__(self, path):
        self._path = Path(path)
        self._names = set()

    def add(self, mapping, prefix=None):
        self._names |= {f"{prefix}/{name}" if prefix else name for name in mapping}

    def write(self):
        self._path.write_text("\n".join(sorted(self._names)))


def make_batches(replay, mode):
    return Batches(replay, mode, 4, 9 if mode == "train" else 5)


def test_parts_by_others(tmp_path):
    args = make_args(tmp_path)
    ours = make_factories(args)

    def make_replay():
        return ListReplay(9)

    def make_logger():
        return FileLogger(tmp_path / "names.txt")

    theirs = (MutatingAgent, make_replay, make_replay, ours[3], ours[4], make_batches, make_logger)
    with running_fleet(args, factories=theirs) as fleet:
        fleet.join()
    names = (tmp_path / "names.txt").read_text().splitlines()
    assert [name for name in names if "episode/score" in name] == ["episode/score"] and "evaluation/score" in names
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint and checkpoint.manifest["updates"] > 50


def make_failing_batches(args, replay, mode):
    """A stream that fits references, until it makes a mistake of its own."""
    options = {"length": 8 if mode == "train" else 4, "consec": 1, "context": 1}
    for number, batch in enumerate(consecutive_batches(replay, mode, batch_size=args.batch_size, **options)):
        if number == 5:
            raise KeyError("a key of mine")
        yield batch


@pytest.mark.parametrize(("mode", "number"), [("train", 5), ("eval", 0)])
def test_a_serial_run_ends_with_what_a_thread_of_the_agent_must_not_hear_of(tmp_path, mode, number):
    """The thread that trains waits for the stream whose source fails, or for another one."""
    args = make_args(tmp_path, actor_batch=2, report_every=0.0)

    def make_stream(replay, asked):
        for count, batch in enumerate(make_batches(replay, asked)):
            if (asked, count) == (mode, number):
                raise KeyError("a key of mine")
            yield batch

    make_agent = functools.partial(GuestAgent, actor_batch=2, batch_size=4, policy_modes=("train", "eval"))
    factories = make_factories(args, make_agent)._replace(make_stream=make_stream)
    try:
        with pytest.raises(KeyError, match="a key of mine"):
            serial(factories, args)
    finally:
        lifecycle.reset()


class FullReplay(ListReplay):
    """Breaks when it has a hundred steps."""

    def add(self, step, worker):
        if self._count == 100:
            raise TypeError("no idea how to grow")
        super().add(step, worker)


@pytest.mark.parametrize(
    ("part", "error", "cause"),
    [
        ("make_stream", "KeyError: 'a key of mine'", "sample_batch_train"),
        ("make_replay_train", "TypeError: no idea how to grow", "add_batch"),
    ],
)
def test_an_error_in_a_part_by_others_is_shown_as_theirs(tmp_path, part, error, cause):
    args = make_args(tmp_path, max_restarts=0)
    parts = {
        "make_stream": functools.partial(make_failing_batches, args),
        "make_replay_train": functools.partial(FullReplay, 9),
    }
    factories = make_factories(args)._replace(**{part: parts[part]})
    expected = rf"(?s)agent.*replay\.{cause} failed: {error}.*traceback in replay.*test_foreign_parts\.py.*{error}"
    with pytest.raises(RunFailed, match=expected), running_fleet(args, factories=factories) as fleet:
        fleet.join()
    log = (tmp_path / "logs" / "replay.log").read_text()
    assert error in log and "sending rows instead" not in log, "the error is not taken for something else"
