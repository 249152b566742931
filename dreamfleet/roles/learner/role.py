"""The learner: trains on batches that are requested ahead, sends refreshed states back, reports and checkpoints."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from dreamfleet import lifecycle
from dreamfleet.agent.contract import Agent, ReplicatedAgent, SeededAgent
from dreamfleet.base import waits
from dreamfleet.base.accelerators import describe_devices
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import Closed
from dreamfleet.options import Args, RoleOptions, read_args
from dreamfleet.replay import Batch
from dreamfleet.roles import protocol
from dreamfleet.roles.gang.member import COMPLETE, STOPPED, Gang
from dreamfleet.roles.hello import stored_counts
from dreamfleet.roles.learner.batches import BatchSource, parallel_stream
from dreamfleet.roles.learner.measures import Measures, warn_if_failed
from dreamfleet.roles.learner.reading import ReadingThread
from dreamfleet.roles.learner.restoring import restore_agent
from dreamfleet.roles.learner.saver import CheckpointSaver
from dreamfleet.roles.learner.training import train_until_over
from dreamfleet.roles.periodic import Every
from dreamfleet.roles.protocol import ReplayCounts, RunProgress
from dreamfleet.roles.tally import Tally, shared_tally
from dreamfleet.roles.wiring import Peers, connect, unless_failed

log = logging.getLogger("dreamfleet.learner")

REPLICA_BITS = 24  # of the seeds of policies, above those that count lives
LOOK_EVERY_S = 1.0  # at the end of the run: time passes, and a replay of others fills up, without a word
PART_SHARE = 0.25  # of the time that a stop may take, for replay and logger to add their parts to the last checkpoint


def parallel_learner(agent: Agent, barrier: threading.Barrier, args: Args) -> None:
    """Restores the agent, lets the actor begin, and trains until the run's steps, updates or duration are reached."""
    learn(agent, barrier, args)


def learn(agent: Agent, barrier: threading.Barrier, args: Args, gang: Gang | None = None) -> None:
    """The same, with a gang together with other learners."""
    options = read_args(args)
    stored = stored_counts(options)
    learner: Learner | None = None

    def facts() -> dict:
        return {"counts": learner.counts if learner and learner.step >= stored.inserts else stored}

    with unless_failed(barrier):
        replay = connect(options, "replay", "learner", me="learner", facts=facts, max_inflight=options.prefetch + 18)
        logger = connect(options, "logger", "learner", me="learner", max_inflight=8)
        learner = Learner(agent, Peers(replay, logger), options, tally=shared_tally(barrier, options), gang=gang)
        learner.restore()
    with lifecycle.waiting(waits.ACTOR_START()):
        barrier.wait()
    train_until_over(learner)
    if learner.is_complete():
        lifecycle.note_complete()
    lifecycle.request_stop()  # nothing is collected any more while the last checkpoint is written
    if learner.is_left:
        log.info("stopped during the first update: no checkpoint is written, as nothing was learned since the start")
    elif not lifecycle.failure():
        lifecycle.progress()  # has something to save, so that it is not ended as one that has not started
    learner.finish()
    replay.close()
    logger.close()
    if not learner.is_left:
        learner.turn.release()  # a thread that was left behind and can end does so


class Learner:
    """The training side of the agent, with its clocks, its counts and its place in the run.

    Whoever trains, saves or finishes has the `turn`; it is given up while a batch is waited for.
    """

    def __init__(
        self,
        agent: Agent,
        peers: Peers,
        options: RoleOptions,
        tally: Tally | None = None,
        reads_apart: bool = False,
        gang: Gang | None = None,
    ):
        """With `reads_apart`, streams are read in a thread that may be left behind, if their source fails.

        In a `gang`, updates are made together with other learners; replica 0 restores, reports and saves for all.
        """
        self.updates = 0
        self.turn = threading.Lock()
        self._counts = ReplayCounts()
        self._tally = tally or Tally(options)
        self._agent, self._gang = agent, gang
        self._is_first_replica = gang is None or options.replica == 0
        self._replay = peers.replay
        self._options = options
        self._checkpoints = Checkpoints(options.logdir, keep=options.keep)
        patience_s = PART_SHARE * options.stop_grace
        self._saver = CheckpointSaver(self._checkpoints, peers._asdict(), patience_s, run_id=options.run_id)
        self._carry: Any = None
        self._new_updates = 0  # in this life
        self._is_first_update = False  # it is under way
        self.is_left = False  # the thread that trains, in its first update
        self._sources: dict[str, BatchSource] = {}  # by mode
        self._streams: dict[str, Iterator[Batch]] = {}
        self._reader = ReadingThread(on_done=self.look) if reads_apart else None
        self._is_finished = False
        self._failure: BaseException | None = None
        self._looking = threading.Event()  # set when something has changed for who waits for the end
        self._observing = threading.Lock()
        self._measures = Measures(agent, peers, options)
        self._elapsed_before_s = 0.0  # in earlier lives of this run
        self._start = time.monotonic()
        self._should_log = Every(options.log_every)
        self._should_report = Every(options.report_every if options.report_batches else 0)
        self._should_save = Every(options.save_every)
        self._saved_step = 0  # as far as `save_every_steps` goes
        self._device = describe_devices()
        lifecycle.show_figures(self.figures)

    @property
    def counts(self) -> ReplayCounts:
        """What the replay said last; one of others says nothing, so that what it acknowledged counts."""
        if self._replay.is_plain:
            return self._tally.counts(self.updates * self._options.batch_size)
        return self._counts

    @property
    def step(self) -> int:
        return self.counts.inserts

    @property
    def elapsed_s(self) -> float:
        return self._elapsed_before_s + time.monotonic() - self._start

    def restore(self) -> None:
        """Continues from the run's newest checkpoint, else starts from `from_checkpoint` if one is named."""
        if self._is_first_replica and (checkpoint := restore_agent(self._agent, self._checkpoints, self._options)):
            self.updates = checkpoint.manifest["updates"]
            self._counts = ReplayCounts.from_data(checkpoint.manifest["counts"])  # until the replay says better
            self._elapsed_before_s = checkpoint.manifest["elapsed_s"]
            self._saved_step = checkpoint.step
            log.info("resumed from %s at %d updates", checkpoint.name, self.updates)
        if self._gang:
            self._share()
        if isinstance(self._agent, SeededAgent):
            # What was drawn after the checkpoint is in the replay: drawing it again would explore nothing new.
            self._agent.seed_policy(lifecycle.incarnation() + (self._options.replica << REPLICA_BITS))
        self._carry = self._agent.init_train(self._options.batch_size)  # it may depend on what was loaded

    def _share(self) -> None:
        """Has all replicas begin where replica 0 is."""
        assert self._gang and isinstance(self._agent, ReplicatedAgent), type(self._agent)
        if not self._gang.meet():
            return  # the run is over
        updates, self._elapsed_before_s = self._agent.share_state((self.updates, self._elapsed_before_s))
        self.updates = int(updates)

    def start(self) -> None:
        """Has the agent make its streams, for the thread that calls this to train from."""
        for mode in protocol.MODES:
            batches = self._batches(mode)
            self._sources[mode] = source = BatchSource(batches, on_failure=self.fail)
            # The iterator is asked for once: a stream may start a thread for it.
            self._streams[mode] = iter(self._agent.stream(source))

    def is_complete(self) -> bool:
        """Whether the run has reached its steps, updates or duration, or an environment has ended it."""
        options = self._options
        is_reached = 0 < options.steps <= self.step or 0 < options.duration <= self.elapsed_s
        return is_reached or self.has_all_updates() or lifecycle.is_complete()

    def has_all_updates(self) -> bool:
        """Whether the run has reached its updates."""
        return 0 < self._options.updates <= self.updates

    def is_over(self) -> bool:
        """Whether the run is complete, or was asked to stop."""
        return self.is_complete() or lifecycle.stopping()

    def observe(self, counts: ReplayCounts) -> None:
        """Takes the replay's counts, and tells the logger where the run stands once a second."""
        with self._observing:  # the agent may read each of its streams in another thread
            if counts.inserts >= self._counts.inserts:  # those of an answer that was overtaken are old
                self._counts = counts
            if self._measures.is_progress_due():
                self._measures.send_progress(self._progress())
        if self.is_complete():
            self.look()

    def take_turn(self) -> None:
        """Waits for the update that is under way, unless it is the first one and the run was stopped."""
        while not self.turn.acquire(timeout=LOOK_EVERY_S):
            if self._is_first_update and lifecycle.stopping() and not self.is_complete():
                self.is_left = True
                return

    def next_batch(self, mode: str = "train") -> Batch | None:
        """The next batch of a mode, as the agent's own stream hands it on; None at the end of the run."""
        self.turn.release()
        try:
            batch = self._read(self._streams[mode])
        finally:
            self.turn.acquire()
        if self._is_finished:
            raise Closed("the learner has finished")
        return batch

    def may_update(self, batch: Batch) -> bool:
        """Whether the next update is to be made, which a gang decides for all of its replicas."""
        if self._gang is None:
            return True
        if not self._new_updates:
            assert isinstance(self._agent, ReplicatedAgent), type(self._agent)
            self._is_first_update = True
            self._agent.prepare_update(self._carry, batch)
        return self._gang.may_update(self.updates)

    def leave_gang(self) -> None:
        """Tells the other replicas that the run is over, if it is; not if this one is lost."""
        has_failed = self._failure or lifecycle.failure()
        is_lost = has_failed or (lifecycle.is_orphaned() and not self.is_complete())
        if self._gang and self.is_over() and not is_lost:
            self._gang.end(COMPLETE if self.is_complete() else STOPPED)

    def train(self, batch: Batch) -> None:
        """One update of the agent, and the states it refreshed on their way back to replay."""
        self._measures.enter("train")
        self._is_first_update = not self._new_updates
        with lifecycle.waiting(waits.TRAIN_STEP()) if self._is_first_update else contextlib.nullcontext():
            self._carry, outs, metrics = self._agent.train(self._carry, batch)
        self.updates += 1
        self._new_updates += 1
        self._is_first_update = False
        if self.is_left:
            raise Closed("the run was stopped during the first update")
        lifecycle.progress()
        lifecycle.set_state("running")  # without environments, this is all that the agent does
        self._measures.add_update(metrics)
        if "replay" in outs:
            future = self._replay.call(protocol.UPDATE, outs["replay"])
            future.add_done_callback(warn_if_failed)

    def figures(self) -> lifecycle.Figures:
        """For whoever watches the agent."""
        figures: lifecycle.Figures = {"new_updates": self._new_updates, "device": self._device}
        if (loss := self._measures.loss) is not None:
            figures["loss"] = loss
        if self._saver.saved:
            step, at = self._saver.saved
            figures |= {"saved_step": step, "saved_ago_s": round(time.monotonic() - at, 1)}
        return figures

    def run_periodic(self) -> None:
        """Report, log and save, each when it is due; then the next batch is waited for."""
        for name, is_due, act in (
            ("report", self._should_report, self.report),
            ("log", self._should_log, self.log),
            ("save", self._is_save_due, self.save),
        ):
            if is_due() and (name == "log" or self._is_first_replica):
                self._measures.enter(name)
                act()
        self._measures.enter("batch")

    def _is_save_due(self) -> bool:
        """By the time that has passed, or by the steps."""
        is_due, every = self._should_save(), self._options.save_every_steps
        if every and self.step // every > self._saved_step // every:
            self._saved_step, is_due = self.step, True
        return is_due

    def report(self) -> None:
        """Runs the agent's report on batches of both replays that have enough data for one."""
        for mode, items in (("report", self.counts.items), ("eval", self.counts.eval_items)):
            if items < self._options.batch_size:
                continue
            carry, reports = self._agent.init_report(self._options.batch_size), []
            for _ in range(self._options.consec_report * self._options.report_batches):
                if (batch := self.next_batch(mode)) is None:
                    return  # the run is over, and half a report is none
                carry, metrics = self._agent.report(carry, batch)
                reports.append(metrics)
            for metrics in reports:
                self._measures.add(metrics, mode)

    def log(self) -> None:
        """Sends what the agent and the learner measured since the last time."""
        self._measures.send(self._progress())

    def save(self) -> None:
        """Starts a checkpoint of the whole run."""
        self._saver.save(self._agent.save, self._manifest(), self.counts)

    def wait_saved(self) -> None:
        """Returns when no checkpoint is being written."""
        self._saver.wait()

    def finish(self) -> None:
        """The last metrics and the last checkpoint of this life; batches come to their end."""
        self._is_finished = True
        self.log()
        self._measures.write_progress(self._progress())
        if self.is_left or not self._is_first_replica:
            return
        self._saver.finish(self._agent.save, self._manifest(), self.counts)

    def wait_unread(self) -> None:
        """Returns, after the finish, when no thread of the agent is reading batches any more."""
        for source in self._sources.values():
            source.wait_unread()
        if self._reader:
            self._reader.close()

    def fail(self, error: BaseException) -> None:
        """Makes what a thread died of what the learner fails with, unless all is over."""
        if not self._is_finished:
            self._failure = self._failure or error
            self.look()

    def blame_gang(self, error: BaseException) -> None:
        """Finds out whether what failed here is due to another replica: then this process ends for that."""
        if self._gang:
            self._gang.explain(error)

    def raise_failure(self) -> None:
        if self._failure:
            raise self._failure

    def look(self) -> None:
        """Has whoever waits look at the state of the run again."""
        self._looking.set()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Blocks until a condition holds, or the learner has failed; for one thread."""
        while not condition() and not self._failure:
            self._looking.wait(LOOK_EVERY_S)
            self._looking.clear()

    def _read(self, stream: Iterator[Batch]) -> Batch | None:
        if self._reader is None:
            return next(stream, None)
        call = self._reader.call(lambda: next(stream, None))
        self.wait_for(call.done)
        self.raise_failure()
        return call.result()

    def _manifest(self) -> dict:
        return {"updates": self.updates, "elapsed_s": self.elapsed_s}

    def _batches(self, mode: str) -> Iterator[Batch]:
        is_train = mode == "train"
        return parallel_stream(
            self._replay,
            mode,
            prefetch=self._options.prefetch if is_train else 1,
            on_counts=self.observe,
            is_over=lambda: self._is_finished,
            updates=self.updates if is_train else None,
        )

    def _progress(self) -> RunProgress:
        return RunProgress(self.counts, self.updates, self.elapsed_s)
