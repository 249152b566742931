"""The replay server: admits transitions through the rate limiter, serves batches, owns the counts of both."""

import functools
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dreamfleet import lifecycle, rpc
from dreamfleet.base import waits
from dreamfleet.base.logdir import COUNTS
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import BadRequest, Closed, DreamfleetError, NoSpace
from dreamfleet.options import Args, RoleOptions, read_args
from dreamfleet.replay import Limiter, Replay
from dreamfleet.roles import protocol
from dreamfleet.roles.hello import Reception, check_settings, is_elsewhere, make_hello
from dreamfleet.roles.periodic import Every, StatsSender
from dreamfleet.roles.protocol import BatchMark, Hello, ReplayCounts, SampleInfo, SampleRequest, SaveRequest
from dreamfleet.roles.replay.batches import BatchStreams, SentBatches
from dreamfleet.roles.replay.buffer import Buffer, EnvRows
from dreamfleet.roles.replay.counts import Counts, CountsFile, make_note, read_note
from dreamfleet.roles.transitions import read_rows
from dreamfleet.roles.wiring import Handler, load_factory, serve

log = logging.getLogger("dreamfleet.replay")

SPACE_EVERY_S = 1.0  # how often a full disk is looked at again


@lifecycle.stopped_by_signals()
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
    reception = Reception(options, role.make_hello, role.check_hello)
    # A replay for portal programs cannot ask for a hello; in a fleet of ours, the agent says it.
    role.reception = reception if options.run_id or options.transport != "portal" else None
    server = serve(options, "replay", role.methods(), reception)
    reports, should_save = StatsSender(options, "replay", "replay"), Every(options.save_every)
    with lifecycle.on_stop(role.limiter.close), server:
        lifecycle.show_figures(lambda: {"steps": role.limiter.inserts})
        lifecycle.set_state("running")
        while not lifecycle.wait_stop(options.log_every):
            reports.send({**role.stats(), **server.stats()})
            if should_save():
                role.save_alone()
    role.save_alone()
    reports.close()
    role.close()


class ReplayRole:
    """Two replays behind one limiter, with the counts that the whole run goes by.

    A step is one committed training row. Report and eval batches never count as samples.
    """

    def __init__(
        self,
        train: Replay,
        evaluation: Replay,
        make_stream: Callable,
        options: RoleOptions,
        space_every_s: float = SPACE_EVERY_S,
    ):
        self._own = {"train": Buffer(train), "eval": Buffer(evaluation)}
        self._by_mode = {**self._own, "report": self._own["train"]}
        self._streams = BatchStreams(make_stream, self._by_mode)
        self._sent = {mode: SentBatches() for mode in protocol.MODES}
        self._batch_size = options.batch_size
        self.reception: Reception | None = None  # who may ask; everybody, where nobody presents itself
        self._options = options
        self._space_every_s = space_every_s
        self._duplicates = 0
        self._has_trainer = False  # one of ours, which asks for checkpoints
        self._lock = threading.Lock()  # guards the file: inserts and samples are counted by different threads
        self._moment = threading.Lock()  # held while rows are there that are not counted
        self._file = CountsFile(Path(options.logdir) / COUNTS)
        kept = self._file.read()
        self._mark = BatchMark(kept.actor, kept.sequence)  # the last batch that was committed
        self._marks = dict.fromkeys(self._own, self._mark)
        for name, buffer in self._own.items():
            if buffer.note is not None:
                # Committed with the rows; after a kill the file may be behind it.
                inserts, self._marks[name] = read_note(buffer.note)
                kept.inserts = max(kept.inserts, inserts)
        self.limiter = Limiter(
            lambda: len(train),
            train_ratio=options.train_ratio,
            batch_size=options.batch_size,
            batch_length=options.batch_length,
            length=options.sequence_length,
            inserts=kept.inserts,
            samples=kept.samples,
            steps=options.steps,
        )
        self._saved_inserts = kept.inserts
        self._counted = kept.inserts, kept.samples  # at the last `stats`

    def restore(self, checkpoints: Checkpoints) -> None:
        """Takes the replays' contents from the newest checkpoint, if there is one."""
        checkpoint = checkpoints.latest("replay")
        if checkpoint is None:
            return
        state = checkpoint.read("replay")
        is_truncated = {name: buffer.load(state[name]) for name, buffer in self._own.items()}
        if is_truncated["train"]:
            self.limiter.inserts = state["inserts"]
        log.info("restored replay buffer: %d sequences (%s)", len(self._own["train"]), checkpoint.name)

    def make_hello(self) -> Hello:
        """What this replay says of itself."""
        return make_hello(self._options, "replay", counts=self.counts())

    def check_hello(self, theirs: Hello) -> None:
        """Refuses a trainer that wants other batches, or that has stored more than there is here."""
        if theirs.role not in ("actor", "learner"):
            return
        self._has_trainer = True
        check_settings(theirs, self.make_hello())
        stored, here = theirs.counts or ReplayCounts(), self.limiter.inserts
        if stored.inserts <= here:
            return
        loss = f"this replay holds {here} of the {stored.inserts} steps that the run has stored"
        if not self._options.allow_lost_steps:
            remedy = "start it with the log directory that has them, or with --run.allow_lost_steps True to go on"
            raise BadRequest(f"{loss} (in {self._options.logdir}): {remedy}")
        log.warning("%s: going on at step %d, as run.allow_lost_steps says", loss, stored.inserts)
        self.limiter.inserted(stored.inserts - here)
        self.limiter.set_samples(max(stored.samples, self.limiter.samples))
        self._write_counts()

    def methods(self) -> dict[str, Handler]:
        """What the server answers to, as functions of data and metadata."""
        samplers = {name: functools.partial(self.sample_batch, mode) for mode, name in protocol.SAMPLE_BATCH.items()}
        return {
            protocol.ADD_BATCH: self.add_batch,
            **samplers,
            protocol.UPDATE: self.update,
            protocol.SAVE: self.save,
        }

    def add_batch(self, data: Any, meta: dict) -> rpc.Reply:
        """Commits one row of each of several environments, once, when the limiter allows it."""
        batch, env_ids, is_eval = read_rows(data, "is_first")
        rows = EnvRows(batch, env_ids.tolist())
        mark = BatchMark.from_meta(meta)
        if not any(map(len, self._own.values())) and not self.limiter.inserts:
            self._check_presented(mark.actor, "actor")  # the first rows define the columns of all others
        masks = {"train": ~is_eval, "eval": is_eval}
        # After a kill between the two, one replay may have its rows of a batch and the other not.
        masks = {k: mask for k, mask in masks.items() if mask.any() and not self._marks[k].covers(mark)}
        self._duplicates += not masks
        if "train" in masks and not self.limiter.wait_insert():
            raise Closed("the replay stops; the batch was not taken")
        for name, mask in masks.items():
            self._insert(name, rows.select(mask), mark)
            lifecycle.progress()
        self._write_counts()
        return rpc.Reply({}, self.counts().to_meta())

    def sample_batch(self, mode: str, _: Any, meta: dict) -> rpc.Reply:
        """The next batch of a mode, as `SampleRequest` describes it."""
        request = SampleRequest.from_meta(meta)
        if request.updates is not None:
            self._check_presented(request.learner.partition(":")[0], "learner")  # what it says sets the counts
        if reply := self._sent[mode].find(request):
            return reply
        if request.updates is not None:
            self.limiter.set_samples(request.updates * self._batch_size)
            self._streams.restart(mode)
        is_again = request.again and len(self._by_mode[mode]) > 0
        if not is_again and not self._wait_batch(mode, request.wait_s):
            if request.wait_s is None:
                raise Closed("the replay stops; there is no batch")
            return rpc.Reply({}, SampleInfo(self.counts(), is_pending=True).to_meta())
        batch, places = self._streams.next(mode, request.reader)
        if mode == "train" and not is_again:
            self.limiter.sampled(self._batch_size)
            self._write_counts()
        info = SampleInfo(self.counts(), references=places)
        return self._sent[mode].keep(request, rpc.Reply(batch, info.to_meta()))

    def update(self, data: Any, _: dict) -> dict:
        """Writes refreshed states back."""
        if not isinstance(data, dict) or protocol.STEP_ID not in data:
            raise BadRequest(f"an update is a dict with '{protocol.STEP_ID}' and the arrays to write")
        self._own["train"].update(data)
        return {}

    def save(self, data: Any, _: dict) -> dict:
        """Adds the replays' contents to a checkpoint draft; returns the counts they stand for."""
        request, options = SaveRequest.from_data(data), self._options
        self._has_trainer = True
        state, counts = self._state()
        checkpoints = Checkpoints(options.logdir, options.keep)
        is_apart = is_elsewhere(options.logdir, request.run)
        checkpoints.add_part(request.name, "replay", state, is_apart, step=counts.inserts)
        return counts.to_data()

    def save_alone(self) -> None:
        """Saves what came since the last time, without being asked: trainers of others never ask."""
        if self._has_trainer or self.limiter.inserts == self._saved_inserts:
            return
        state, counts = self._state()
        try:
            draft = Checkpoints(self._options.logdir, self._options.keep).draft(counts.inserts)
            draft.write("replay", state)
            draft.commit({"counts": counts.to_data()})
        except (DreamfleetError, OSError) as error:
            log.warning("the replay buffer was not saved: %s", error)
        else:
            self._saved_inserts = counts.inserts

    def _state(self) -> tuple[dict[str, Any], ReplayCounts]:
        """The replays' contents, and the counts they stand for."""
        with self._moment:
            counts = self.counts()
            own = {name: buffer.replay.save() for name, buffer in self._own.items()}
            return {**own, "inserts": counts.inserts}, counts

    def counts(self) -> ReplayCounts:
        train, evaluation = self._own["train"], self._own["eval"]
        counted = self.limiter.inserts, self.limiter.samples
        return ReplayCounts(*counted, len(train), len(evaluation), train.capacity, train.steps)

    def stats(self) -> dict[str, float]:
        own = {
            "duplicates": self._duplicates,
            "reference_batches": self._streams.references,
            "ratio": self._ratio(),
            **{f"limiter/{k}": v for k, v in self.limiter.stats().items()},
        }
        theirs = {f"{name}/{k}": v for name, buffer in self._own.items() for k, v in buffer.replay.stats().items()}
        return {**self.counts().to_meta(), **own, **theirs}

    def _ratio(self) -> float:
        """Replayed steps per inserted step since the last call."""
        before, self._counted = self._counted, (self.limiter.inserts, self.limiter.samples)
        inserts, samples = (now - then for now, then in zip(self._counted, before, strict=True))
        return samples * self._options.batch_length / inserts if inserts else 0.0

    def close(self) -> None:
        for buffer in self._own.values():
            buffer.close()
        self._file.close()

    def _check_presented(self, session: str, role: str) -> None:
        """Refuses what only the run's own processes may ask for."""
        if self.reception and not self.reception.knows(session, role):
            raise BadRequest(f"this is for the {role} of the run, which says {protocol.HELLO} first")

    def _insert(self, name: str, rows: EnvRows, mark: BatchMark) -> None:
        """Adds rows and counts them; while the disk is full, everybody waits for somebody to free some space."""
        count = len(rows.env_ids) if name == "train" else 0
        while True:
            try:
                with self._moment:
                    self._own[name].insert(rows, make_note(self.limiter.inserts + count, mark))
                    self._mark = self._marks[name] = mark
                    self.limiter.inserted(count)
                return
            except NoSpace as error:
                log.warning("disk full, waiting for space: %s", error)
                with lifecycle.waiting(waits.NO_SPACE(reason=error)):
                    if lifecycle.wait_stop(self._space_every_s):
                        raise Closed("the replay stops; the batch was not taken") from error

    def _write_counts(self) -> None:
        with self._lock:
            self._file.write(Counts(self.limiter.inserts, self.limiter.samples, self._mark.actor, self._mark.sequence))

    def _wait_batch(self, mode: str, timeout_s: float | None) -> bool:
        if mode == "train":
            return self.limiter.wait_sample(self._batch_size, timeout_s)
        buffer = self._by_mode[mode]
        what = waits.ENV_DATA(mode=mode)
        return self.limiter.wait_for(lambda: len(buffer) >= self._batch_size, what, timeout_s)
