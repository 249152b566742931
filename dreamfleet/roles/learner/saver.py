"""Checkpoints of a running fleet: one manifest over the parts of agent, replay and logger."""

import logging
import threading
import time
from typing import Any

from dreamfleet import lifecycle
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import DreamfleetError
from dreamfleet.roles import protocol
from dreamfleet.roles.protocol import LoggerCounts, ReplayCounts, SaveRequest
from dreamfleet.roles.wiring import Caller

log = logging.getLogger("dreamfleet.checkpoint")

PART_TIMEOUT_S = 120.0
COUNTS = {"replay": ReplayCounts, "logger": LoggerCounts}  # that a peer answers with, by the name of its part


class CheckpointSaver:
    """Writes checkpoints in the background; replay and logger add their own parts to the same draft."""

    def __init__(self, checkpoints: Checkpoints, peers: dict[str, Caller]):
        self._checkpoints = checkpoints
        self._peers = peers  # by the name of their part
        self._thread: threading.Thread | None = None

    def save(self, step: int, agent_state: Any, manifest: dict) -> None:
        """Starts writing a checkpoint, after the one before is finished."""
        self.wait()
        self._thread = lifecycle.spawn(self._write, step, agent_state, manifest, name="checkpoint", daemon=False)

    def wait(self) -> None:
        """Blocks until nothing is being written."""
        if self._thread:
            with lifecycle.waiting("checkpoint: writing"):
                self._thread.join()

    def _write(self, step: int, agent_state: Any, manifest: dict) -> None:
        start = time.monotonic()
        try:
            draft = self._checkpoints.draft(step)
        except DreamfleetError as e:
            log.warning("no checkpoint at step %d: %s", step, e)
            return
        try:
            asked = {
                part: peer.call(protocol.SAVE, SaveRequest(draft.name).to_data(), deadline_s=PART_TIMEOUT_S)
                for part, peer in self._peers.items()
            }
            draft.write("agent", agent_state)
            counts = {part: COUNTS[part].from_data(future.result(PART_TIMEOUT_S)) for part, future in asked.items()}
            checkpoint = draft.commit({**manifest, **{part: count.to_data() for part, count in counts.items()}})
        except DreamfleetError as e:
            draft.abort()
            log.warning("no checkpoint at step %d, keeping the previous one: %s", step, e)
            return
        log.info("saved %s in %.1f s", checkpoint.name, time.monotonic() - start)
