"""Delivery of transitions from the actor: to replay exactly once and none dropped, to the logger as it keeps up."""

import logging
import time
import uuid

from dreamfleet import lifecycle, rpc
from dreamfleet.agent.contract import Batch
from dreamfleet.base import waits
from dreamfleet.errors import Closed, DreamfleetError
from dreamfleet.options import RoleOptions
from dreamfleet.roles import transitions
from dreamfleet.roles.actor.channel import Channel
from dreamfleet.roles.protocol import ADD_BATCH, ENV_ID, IS_EVAL, TRAN, BatchMark, LogPosition, ReplayCounts
from dreamfleet.roles.tally import Tally
from dreamfleet.roles.wiring import LOGGER_PATIENCE_S, Caller

log = logging.getLogger("dreamfleet.actor")

LOGGER_BACKLOG = 512
LOGGER_DELAY_S = 0.1  # nobody waits for the logger, and every message costs it and us a switch of processes
DELAY_S = 0.01  # transitions wait this long for others to travel with


class TransitionSender:
    """Sends transitions to replay and logger; the role fails when replay refuses one."""

    def __init__(
        self,
        replay: Caller,
        logger: Caller,
        options: RoleOptions,
        delay_s: float = DELAY_S,
        tally: Tally | None = None,
    ):
        self._clients = {"replay": replay, "logger": logger}
        self._tally = tally or Tally(options)
        self._is_full = options.log_full
        self._incarnation = replay.session or uuid.uuid4().hex
        self._sequence = 0
        self._steps = options.steps if delay_s else 0  # a role that is called in place is not to wait
        self._step: int | None = None  # of the run, as replay said last
        self._has_gap = False
        self._is_logger_away = False
        self._has_met_logger = logger.is_plain is not None
        self._video_ids: dict[bool, int] = {}  # first environment seen, by is_eval
        self._replay = Channel(
            replay,
            ADD_BATCH,
            backlog=options.backlog,
            delay_s=delay_s,
            make_meta=self._make_mark,
            on_done=self._on_acknowledged,
        )
        # Rows with and without images cannot be joined, and never are of the same environment: one channel for each.
        self._logger = {
            has_images: Channel(
                logger,
                TRAN,
                backlog=LOGGER_BACKLOG,
                delay_s=delay_s and LOGGER_DELAY_S,
                make_meta=self._make_position,
                on_done=self._on_logged,
            )
            for has_images in (False, True)
        }

    @property
    def step(self) -> int:
        """How many steps the run has stored, as replay said last."""
        return self._step or 0

    @property
    def unacknowledged(self) -> int:
        return self._replay.unacknowledged

    def send(self, transition: Batch) -> None:
        """Takes a transition; waits while too many are unacknowledged, and when the run has all its steps."""
        if self._steps and self._step is not None and self._replay.is_now(self._has_all_steps):
            return  # acted on between the end of that wait, when the run is over, and the end of the server
        self._replay.put(transitions.for_replay(transition))
        self._send_logger(transition)
        if self._steps:
            self._replay.wait_while(lambda: self._step is None, waits.FIRST_ANSWER())  # it may be elsewhere
            self._replay.wait_while(self._has_all_steps, waits.END_OF_RUN(peer="replay"))

    def drain(self, timeout_s: float) -> None:
        """Sends what is left and waits for it to be acknowledged; to be called when nothing is sent any more."""
        deadline = time.monotonic() + timeout_s
        for channel in self._channels:
            channel.drain(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Wakes whoever waits to send."""
        for channel in self._channels:
            channel.close()

    @property
    def _channels(self) -> list[Channel]:
        # Replay last: it takes nothing once the learner has ended, and all channels are sending since they were closed.
        return [*self._logger.values(), self._replay]

    def _has_all_steps(self) -> bool:
        """Whether the rows that are under way may be the last ones."""
        # Rows of evaluation are among those under way: this is looked at again when they are acknowledged.
        return self.step + self._replay.unacknowledged_rows >= self._steps

    def _make_mark(self) -> dict:
        """By which replay knows a message that it has seen already."""
        self._sequence += 1
        return BatchMark(self._incarnation, self._sequence).to_meta()

    def _on_acknowledged(self, future: rpc.Future, rows: Batch) -> None:
        try:
            future.result()
            is_plain = self._clients["replay"].is_plain
            stored = self._tally.add(rows) if is_plain else ReplayCounts.from_meta(future.meta).inserts
            self._step = max(self._step or 0, stored)
        except Closed:
            return
        except DreamfleetError as error:
            lifecycle.fail(error)
            self.close()  # what is left cannot be taken either
        else:
            lifecycle.set_state("running")

    def _send_logger(self, transition: Batch) -> None:
        if not self._has_met_logger:
            self._has_met_logger = True  # or it is away, and whose it is turns out later
            self._clients["logger"].wait_connected(LOGGER_PATIENCE_S)
        is_eval, first = bool(transition[IS_EVAL][0]), int(transition[ENV_ID].min())
        self._video_ids[is_eval] = min(first, self._video_ids.get(is_eval, first))
        # A logger of others films whomever it hears first.
        is_full = self._is_full or self._clients["logger"].is_plain is True
        shown, rest = transitions.split_shown(transition, set(self._video_ids.values()), is_full)
        for has_images, rows in ((True, shown), (False, rest)):
            if rows and not self._logger[has_images].put(rows, 0.0 if self._is_logger_away else LOGGER_PATIENCE_S):
                self._logger[has_images].clear()
                self._on_logger_lost("does not keep up")

    def _make_position(self) -> dict:
        """Where in the run the rows are, and whether rows before them were lost."""
        has_gap, self._has_gap = self._has_gap, False
        return LogPosition(self._step or 0, has_gap).to_meta()

    def _on_logged(self, future: rpc.Future, _: Batch) -> None:
        try:
            future.result()
        except Closed:
            return
        except DreamfleetError as error:
            self._on_logger_lost(str(error))
        else:
            self._is_logger_away = False

    def _on_logger_lost(self, reason: str) -> None:
        self._has_gap = True
        if not self._is_logger_away and not lifecycle.stopping():
            log.warning("logger: %s; unfinished episodes are not scored", reason)
        self._is_logger_away = True
