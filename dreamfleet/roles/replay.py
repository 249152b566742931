"""The replay server: admits transitions through the rate limiter, serves batches, owns the counts of both."""

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import elements
import numpy as np

from dreamfleet import lifecycle, rpc
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import BadRequest, Closed, ReplayError
from dreamfleet.replay import Batch, Limiter, Replay
from dreamfleet.roles.counts import Counts, CountsFile
from dreamfleet.roles.options import sequence_length, with_defaults
from dreamfleet.roles.reports import RoleReports
from dreamfleet.roles.wiring import load_factory, serve

log = logging.getLogger("dreamfleet.replay")

MODES = ("train", "report", "eval")


def parallel_replay(
    make_replay_train: bytes | Callable,
    make_replay_eval: bytes | Callable,
    make_stream: bytes | Callable,
    args: elements.Config,
) -> None:
    """Serves the training and the evaluation replay until the process is asked to stop."""
    args = with_defaults(args)
    role = ReplayRole(
        load_factory(make_replay_train)(), load_factory(make_replay_eval)(), load_factory(make_stream), args
    )
    role.restore(Checkpoints(args.logdir))
    server = serve(args, "replay")
    for method, fn in role.methods().items():
        server.bind(method, fn, takes_meta=True)
    reports = RoleReports(args, "replay", "replay")
    with lifecycle.on_stop(role.limiter.close), server:
        lifecycle.set_state("running")
        while not lifecycle.wait_stop(args.log_every):
            reports.send({**role.stats(), **server.stats()})
    reports.close()
    role.close()


class ReplayRole:
    """Two replays behind one limiter, with the counts that the whole run goes by.

    A step is one committed training row. Report and eval batches never count as samples.
    """

    def __init__(self, train: Replay, evaluation: Replay, make_stream: Callable, args: elements.Config):
        self._replays = {"train": train, "report": train, "eval": evaluation}
        self._streams: dict[str, Iterator[Batch]] = {}
        self._make_stream = make_stream
        self._batch_size = args.batch_size
        self._logdir, self._keep, self._is_joined = args.logdir, args.keep, args.is_joined
        self._file = CountsFile(Path(args.logdir) / "replay" / "counts")
        kept = self._file.read()
        self._mark = (kept.actor, kept.sequence)  # the last batch that was committed
        self._lock = threading.Lock()  # guards the file: inserts and samples are counted by different threads
        self._duplicates = 0
        self.limiter = Limiter(
            lambda: len(train),
            train_ratio=args.train_ratio,
            batch_size=args.batch_size,
            batch_length=args.batch_length,
            length=sequence_length(args),
            inserts=kept.inserts,
            samples=kept.samples,
        )

    def restore(self, checkpoints: Checkpoints) -> None:
        """Takes the replays' contents from the newest checkpoint, if there is one."""
        checkpoint = checkpoints.latest()
        if checkpoint is None or "replay" not in checkpoint.parts:
            return
        state = checkpoint.read("replay")
        self._replays["train"].load(state["train"])
        self._replays["eval"].load(state["eval"])
        log.info("restored %d sequence starts from %s", len(self._replays["train"]), checkpoint.name)

    def methods(self) -> dict[str, Callable[[Any, dict], Any]]:
        """What the server answers to, as functions of data and metadata."""
        samplers = {f"sample_batch_{mode}": functools.partial(self.sample_batch, mode) for mode in MODES}
        return {"add_batch": self.add_batch, **samplers, "update": self.update, "save": self.save}

    def add_batch(self, data: Any, meta: dict) -> rpc.Reply:
        """Commits one row of each of several environments, once, when the limiter allows it."""
        rows, env_ids, is_eval = _checked_rows(data)
        mark = (meta.get("actor", ""), meta.get("sequence", 0))
        if mark[0] and mark[0] == self._mark[0] and mark[1] <= self._mark[1]:
            self._duplicates += 1
            return rpc.Reply({}, self.counts())
        if not is_eval.all() and not self.limiter.wait_insert():
            raise Closed("the replay stops; the batch was not taken")
        for mode, mask in (("train", ~is_eval), ("eval", is_eval)):
            if mask.any():
                _insert(self._replays[mode], rows, env_ids, mask)
        self._mark = mark
        self.limiter.inserted(int((~is_eval).sum()))
        self._write_counts()
        return rpc.Reply({}, self.counts())

    def sample_batch(self, mode: str, _: Any, meta: dict) -> rpc.Reply:
        """The next batch of a mode.

        A caller that says how long it waits (`wait_s`) gets an empty answer with the counts after that time; any other
        waits until there is a batch. A learner that was restarted says how many `updates` it stands at.
        """
        if "updates" in meta:
            self.limiter.set_samples(meta["updates"] * self._batch_size)
        if not self._wait_batch(mode, meta.get("wait_s")):
            return rpc.Reply({}, {**self.counts(), "is_pending": True})
        if mode not in self._streams:
            self._streams[mode] = iter(self._make_stream(self._replays[mode], mode))
        batch = next(self._streams[mode])
        if mode == "train":
            self.limiter.sampled(self._batch_size)
            self._write_counts()
        return rpc.Reply(batch, self.counts())

    def update(self, data: Any, _: dict) -> dict:
        """Writes refreshed states back."""
        if not isinstance(data, dict) or "stepid" not in data:
            raise BadRequest("an update is a dict with 'stepid' and the arrays to write")
        self._replays["train"].update(data)
        return {}

    def save(self, data: Any, _: dict) -> dict:
        """Adds the replays' contents to the checkpoint draft of the given name; returns the counts they stand for."""
        counts = self.counts()
        state = {"train": self._replays["train"].save(), "eval": self._replays["eval"].save()}
        Checkpoints(self._logdir, self._keep).add_part(data["name"], "replay", state, self._is_joined)
        return counts

    def counts(self) -> dict[str, int]:
        return {
            "inserts": self.limiter.inserts,
            "samples": self.limiter.samples,
            "items": len(self._replays["train"]),
            "eval_items": len(self._replays["eval"]),
            "capacity": getattr(self._replays["train"], "capacity", 0),
        }

    def stats(self) -> dict[str, float]:
        stats = {**self.counts(), "duplicates": self._duplicates}
        for mode in ("train", "eval"):
            stats |= {f"{mode}/{k}": v for k, v in self._replays[mode].stats().items()}
        return stats

    def close(self) -> None:
        self._file.close()

    def _write_counts(self) -> None:
        with self._lock:
            self._file.write(Counts(self.limiter.inserts, self.limiter.samples, *self._mark))

    def _wait_batch(self, mode: str, timeout_s: float | None) -> bool:
        if mode == "train":
            return self.limiter.wait_sample(self._batch_size, timeout_s)
        replay = self._replays[mode]
        return self.limiter.wait_for(lambda: len(replay) >= self._batch_size, f"environments: {mode} data", timeout_s)


def _checked_rows(data: Any) -> tuple[Batch, list[int], np.ndarray]:
    if not isinstance(data, dict) or not {"envid", "is_eval", "is_first"} <= data.keys():
        raise BadRequest("a batch of transitions is a dict with 'envid', 'is_eval', 'is_first' and more")
    rows = {k: np.asarray(v) for k, v in data.items()}
    env_ids, is_eval = rows.pop("envid"), rows.pop("is_eval")
    if env_ids.ndim != 1 or env_ids.dtype.kind not in "iu" or is_eval.shape != env_ids.shape:
        raise BadRequest(f"'envid' {env_ids.dtype}{env_ids.shape} and 'is_eval' {is_eval.shape} must be lists")
    for key, value in rows.items():
        if value.shape[:1] != env_ids.shape:
            raise BadRequest(f"'{key}' has shape {value.shape}, but there are {len(env_ids)} environments")
    return rows, env_ids.tolist(), is_eval.astype(bool)


def _insert(replay: Any, rows: Batch, env_ids: list[int], mask: np.ndarray) -> None:
    if not mask.all():
        rows = {k: v[mask] for k, v in rows.items()}
        env_ids = [env_id for env_id, is_in in zip(env_ids, mask, strict=True) if is_in]
    try:
        if hasattr(replay, "add_many"):
            for part, part_ids in _split_turns(rows, env_ids):
                replay.add_many(part, part_ids)
        else:
            for i, env_id in enumerate(env_ids):
                replay.add({k: v[i] for k, v in rows.items()}, env_id)
    except ReplayError as e:
        raise BadRequest(str(e)) from e


def _split_turns(rows: Batch, env_ids: list[int]) -> Iterator[tuple[Batch, list[int]]]:
    """Parts of the rows, in order, in which every environment is there once."""
    start, seen = 0, set()
    for i, env_id in enumerate(env_ids):
        if env_id in seen:
            yield {k: v[start:i] for k, v in rows.items()}, env_ids[start:i]
            start, seen = i, set()
        seen.add(env_id)
    yield ({k: v[start:] for k, v in rows.items()} if start else rows), env_ids[start:]
