"""The replay server: admits transitions through the rate limiter, serves batches, owns the counts of both."""

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dreamfleet import lifecycle, rpc
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import BadRequest, Closed, NeedsRows, NoSpace, ReplayError
from dreamfleet.options import Args, RoleOptions, read_args
from dreamfleet.replay import Batch, Limiter, Replay, Store
from dreamfleet.replay.references import reader_place, reference_batches
from dreamfleet.roles.replay.counts import Counts, CountsFile, Mark, make_note, read_note
from dreamfleet.roles.replay.sent_batches import SentBatches
from dreamfleet.roles.reports import RoleReports
from dreamfleet.roles.wiring import load_factory, serve

log = logging.getLogger("dreamfleet.replay")

SPACE_EVERY_S = 1.0  # how often a full disk is looked at again
MODES = ("train", "report", "eval")


def parallel_replay(
    make_replay_train: bytes | Callable,
    make_replay_eval: bytes | Callable,
    make_stream: bytes | Callable,
    args: Args,
) -> None:
    """Serves the training and the evaluation replay until the process is asked to stop."""
    options = read_args(args)
    role = ReplayRole(
        load_factory(make_replay_train)(), load_factory(make_replay_eval)(), load_factory(make_stream), options
    )
    role.restore(Checkpoints(options.logdir))
    server = serve(options, "replay")
    for method, fn in role.methods().items():
        server.bind(method, fn, takes_meta=True)
    reports = RoleReports(options, "replay", "replay")
    with lifecycle.on_stop(role.limiter.close), server:
        lifecycle.set_state("running")
        while not lifecycle.wait_stop(options.log_every):
            reports.send({**role.stats(), **server.stats()})
    reports.close()
    role.close()


class ReplayRole:
    """Two replays behind one limiter, with the counts that the whole run goes by.

    A step is one committed training row. Report and eval batches never count as samples.
    """

    def __init__(self, train: Replay, evaluation: Replay, make_stream: Callable, options: RoleOptions):
        self._replays: dict[str, Any] = {"train": train, "report": train, "eval": evaluation}
        self._streams: dict[tuple[str, bool], Iterator[Batch]] = {}  # by mode, and whether they are of references
        self._make_stream = make_stream
        self._sent = {mode: SentBatches() for mode in MODES}
        self._batch_size = options.batch_size
        self._logdir, self._keep, self._is_joined = options.logdir, options.keep, options.is_joined
        self._file = CountsFile(Path(options.logdir) / "replay" / "counts")
        kept = self._file.read()
        self._mark = Mark(kept.actor, kept.sequence)  # the last batch that was committed
        self._marks: dict[str, Mark] = dict.fromkeys(("train", "eval"), self._mark)
        for mode in ("train", "eval"):
            if isinstance(self._replays[mode], Store):
                # Committed with the rows; after a kill the file may be behind it.
                inserts, self._marks[mode] = read_note(self._replays[mode].note)
                kept.inserts = max(kept.inserts, inserts)
        self._lock = threading.Lock()  # guards the file: inserts and samples are counted by different threads
        self._duplicates = 0
        self._referred = 0  # batches handed out as references
        self._without_references: set[str] = set()  # modes whose streams look at more than step ids
        self.limiter = Limiter(
            lambda: len(train),
            train_ratio=options.train_ratio,
            batch_size=options.batch_size,
            batch_length=options.batch_length,
            length=options.sequence_length,
            inserts=kept.inserts,
            samples=kept.samples,
        )

    def restore(self, checkpoints: Checkpoints) -> None:
        """Takes the replays' contents from the newest checkpoint, if there is one."""
        checkpoint = checkpoints.latest()
        if checkpoint is None or "replay" not in checkpoint.parts:
            return
        state = checkpoint.read("replay")
        for mode in self._marks:
            self._replays[mode].load(state[mode])
        if getattr(self._replays["train"], "truncates", False):
            self.limiter.inserts = state["inserts"]
        log.info("restored %d sequence starts from %s", len(self._replays["train"]), checkpoint.name)

    def methods(self) -> dict[str, Callable[[Any, dict], Any]]:
        """What the server answers to, as functions of data and metadata."""
        samplers = {f"sample_batch_{mode}": functools.partial(self.sample_batch, mode) for mode in MODES}
        return {"add_batch": self.add_batch, **samplers, "update": self.update, "save": self.save}

    def add_batch(self, data: Any, meta: dict) -> rpc.Reply:
        """Commits one row of each of several environments, once, when the limiter allows it."""
        rows, env_ids, is_eval = _checked_rows(data)
        mark = Mark(meta.get("actor", ""), meta.get("sequence", 0))
        masks = {"train": ~is_eval, "eval": is_eval}
        # After a kill between the two, one replay may have its rows of a batch and the other not.
        masks = {k: mask for k, mask in masks.items() if mask.any() and not self._marks[k].covers(mark)}
        self._duplicates += not masks
        if "train" in masks and not self.limiter.wait_insert():
            raise Closed("the replay stops; the batch was not taken")
        for mode, mask in masks.items():
            count = int(mask.sum()) if mode == "train" else 0
            self._insert(mode, rows, env_ids, mask, make_note(self.limiter.inserts + count, mark))
            self._mark = self._marks[mode] = mark
            self.limiter.inserted(count)
        self._write_counts()
        return rpc.Reply({}, self.counts())

    def sample_batch(self, mode: str, _: Any, meta: dict) -> rpc.Reply:
        """The next batch of a mode.

        A caller that says how long it waits (`wait_s`) gets an empty answer with the counts after that time; any other
        waits until there is a batch. A learner that was restarted says how many `updates` it stands at; one whose last
        batch was gone when it looked asks `again`. A `reader` on this machine gets references instead of rows. A call
        that is repeated after a lost connection gets the batch that it got before.
        """
        if reply := self._sent[mode].find(meta):
            return reply
        if "updates" in meta:
            self.limiter.set_samples(meta["updates"] * self._batch_size)
            for is_near in (True, False):  # chunks that continue a sequence are of no use to a learner that starts
                self._streams.pop((mode, is_near), None)
        is_again = bool(meta.get("again")) and len(self._replays[mode]) > 0
        if not is_again and not self._wait_batch(mode, meta.get("wait_s")):
            return rpc.Reply({}, {**self.counts(), "is_pending": True})
        batch, place = self._next_batch(mode, self._is_near(mode, meta.get("reader")))
        if mode == "train" and not is_again:
            self.limiter.sampled(self._batch_size)
            self._write_counts()
        return self._sent[mode].keep(meta, rpc.Reply(batch, {**self.counts(), **place}))

    def update(self, data: Any, _: dict) -> dict:
        """Writes refreshed states back."""
        if not isinstance(data, dict) or "stepid" not in data:
            raise BadRequest("an update is a dict with 'stepid' and the arrays to write")
        try:
            self._replays["train"].update(data)
        except ReplayError as e:
            raise BadRequest(str(e)) from e
        return {}

    def save(self, data: Any, _: dict) -> dict:
        """Adds the replays' contents to the checkpoint draft of the given name; returns the counts they stand for."""
        if not isinstance(data, dict) or "name" not in data:
            raise BadRequest("a save is a dict with the 'name' of a checkpoint draft")
        counts = self.counts()
        state = {**{mode: self._replays[mode].save() for mode in self._marks}, "inserts": counts["inserts"]}
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
        stats: dict[str, float] = {
            **self.counts(),
            "duplicates": self._duplicates,
            "reference_batches": self._referred,
        }
        for mode in ("train", "eval"):
            stats |= {f"{mode}/{k}": v for k, v in self._replays[mode].stats().items()}
        return stats

    def close(self) -> None:
        for mode in self._marks:
            if hasattr(self._replays[mode], "close"):
                self._replays[mode].close()
        self._file.close()

    def _insert(self, mode: str, rows: Batch, env_ids: list[int], mask: np.ndarray, note: bytes) -> None:
        """Adds rows to a replay; while the disk is full, everybody waits for somebody to free some space."""
        while True:
            try:
                _insert(self._replays[mode], rows, env_ids, mask, note)
                return
            except NoSpace as error:
                log.warning("waiting for space: %s", error)
                with lifecycle.waiting(f"disk: {error}"):
                    if lifecycle.wait_stop(SPACE_EVERY_S):
                        raise Closed("the replay stops; the batch was not taken") from error

    def _write_counts(self) -> None:
        with self._lock:
            self._file.write(Counts(self.limiter.inserts, self.limiter.samples, *self._mark))

    def _is_near(self, mode: str, reader: Any) -> bool:
        """Whether a reader can map the segments of the replay, and would have to."""
        if mode in self._without_references or not isinstance(self._replays[mode], Store):
            return False
        here = reader_place()
        return isinstance(reader, dict) and reader.get("boot") == here["boot"] and reader.get("pid") != here["pid"]

    def _next_batch(self, mode: str, is_near: bool) -> tuple[Batch, dict]:
        """A batch of rows; or one of references, with where they are to be found."""
        replay = self._replays[mode]
        if is_near:
            try:
                batch = next(self._stream(mode, is_near))
                place = {"paths": replay.paths(batch["stepid"]), "oldest": replay.oldest}
                self._referred += 1
                return batch, place
            except NeedsRows as reason:
                log.info("rows are sent to the learner, although it could map them: %s", reason)
                self._without_references.add(mode)
        return next(self._stream(mode, is_near=False)), {}

    def _stream(self, mode: str, is_near: bool) -> Iterator[Batch]:
        if (mode, is_near) not in self._streams:
            replay = self._replays[mode]
            make = functools.partial(reference_batches, self._make_stream) if is_near else self._make_stream
            self._streams[mode, is_near] = iter(make(replay, mode))
        return self._streams[mode, is_near]

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


def _insert(replay: Any, rows: Batch, env_ids: list[int], mask: np.ndarray, note: bytes) -> None:
    if not mask.all():
        rows = {k: v[mask] for k, v in rows.items()}
        env_ids = [env_id for env_id, is_in in zip(env_ids, mask, strict=True) if is_in]
    try:
        if isinstance(replay, Store):
            replay.add_many(rows, env_ids, note)
        elif hasattr(replay, "add_many"):
            for part, part_ids in _split_turns(rows, env_ids):
                replay.add_many(part, part_ids)
        else:
            for i, env_id in enumerate(env_ids):
                replay.add({k: v[i] for k, v in rows.items()}, env_id)
    except NoSpace:
        raise
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
