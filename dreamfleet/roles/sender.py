"""Delivery of transitions from the actor to replay and logger."""

import logging
import threading
import uuid
from collections.abc import Callable

import elements

from dreamfleet import lifecycle, rpc
from dreamfleet.errors import Closed, DeadlineExceeded, Disconnected, DreamfleetError
from dreamfleet.roles import transitions
from dreamfleet.roles.transitions import Arrays

log = logging.getLogger("dreamfleet.actor")

LOGGER_PATIENCE_S = 1.0


class TransitionSender:
    """Delivers transitions: to replay exactly once and none dropped, to the logger as far as it keeps up."""

    def __init__(self, replay: rpc.Client, logger: rpc.Client, args: elements.Config, on_failure: Callable):
        self.unacknowledged = 0
        self._replay = replay
        self._logger = logger
        self._is_full = args.log_full
        self._on_failure = on_failure
        self._incarnation = uuid.uuid4().hex
        self._sequence = 0
        self._step = 0
        self._has_gap = False
        self._is_logger_away = False
        self._video_ids: dict[bool, int] = {}  # first environment seen, by is_eval
        self._acknowledged = threading.Condition()

    def send(self, transition: Arrays) -> None:
        self._send_replay(transition)
        self._send_logger(transition)

    def drain(self, timeout_s: float) -> None:
        with self._acknowledged, lifecycle.waiting("replay: acknowledgement of the last transitions"):
            self._acknowledged.wait_for(lambda: self.unacknowledged == 0, timeout_s)

    def _send_replay(self, transition: Arrays) -> None:
        self._sequence += 1
        mark = {"actor": self._incarnation, "sequence": self._sequence}
        with self._acknowledged:
            self.unacknowledged += 1
        future = self._replay.call("add_batch", transitions.for_replay(transition), meta=mark, repeat=True)
        future.add_done_callback(self._on_acknowledged)

    def _on_acknowledged(self, future: rpc.Future) -> None:
        with self._acknowledged:
            self.unacknowledged -= 1
            self._acknowledged.notify_all()
        try:
            future.result()
        except Closed:
            return
        except DreamfleetError as e:
            self._on_failure(e)
            return
        self._step = future.meta.get("inserts", self._step)
        lifecycle.set_state("running")

    def _send_logger(self, transition: Arrays) -> None:
        is_eval = bool(transition["is_eval"][0])
        first = int(transition["envid"].min())
        self._video_ids[is_eval] = min(first, self._video_ids.get(is_eval, first))
        for message in transitions.for_logger(transition, set(self._video_ids.values()), self._is_full):
            meta = {"step": self._step, "gap": self._has_gap}
            try:
                patience_s = 0.0 if self._is_logger_away else LOGGER_PATIENCE_S
                future = self._logger.call("tran", message, meta=meta, deadline_s=patience_s)
            except DeadlineExceeded:
                self._lose_logger("does not keep up or is away; episodes under way are not scored")
            else:
                self._has_gap = self._is_logger_away = False
                future.add_done_callback(self._on_logged)

    def _on_logged(self, future: rpc.Future) -> None:
        try:
            future.result()
        except Closed:
            return
        except Disconnected as e:
            self._lose_logger(str(e))
        except DreamfleetError as e:
            log.warning("the logger refused a transition: %s", e)

    def _lose_logger(self, reason: str) -> None:
        self._has_gap = True
        if not self._is_logger_away:
            self._is_logger_away = True
            log.warning("logger: %s", reason)
