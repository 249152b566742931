"""What the learner measures, and tells the logger and the terminal."""

import contextlib
import logging
import math
from typing import Any

import numpy as np

from dreamfleet import rpc
from dreamfleet.agent.contract import Agent, reduces_by_key
from dreamfleet.errors import DeadlineExceeded, DreamfleetError
from dreamfleet.metrics import Aggregator, Rate, Sections, write_progress
from dreamfleet.options import RoleOptions
from dreamfleet.roles import protocol
from dreamfleet.roles.periodic import Every, prefixed
from dreamfleet.roles.progress import ProgressKeeper
from dreamfleet.roles.protocol import RunPosition, RunProgress
from dreamfleet.roles.wiring import LOGGER_PATIENCE_S, Peers

log = logging.getLogger("dreamfleet.learner")

PROGRESS_EVERY_S = 1.0


class Measures:
    """The metrics of the agent, rates and shares of time since they were last sent."""

    def __init__(self, agent: Agent, peers: Peers, options: RoleOptions):
        self._replay, self._logger = peers
        self._options = options
        self._metrics = Aggregator()
        self._by_key = reduces_by_key(agent)
        self._rate = Rate()
        self._sections = Sections()
        self._keeper = ProgressKeeper(options)
        self._should_send_progress = Every(PROGRESS_EVERY_S)
        self._loss: Any = None

    @property
    def loss(self) -> float | None:
        """Of the last update; None if the agent gives no finite number."""
        if not isinstance(self._loss, int | float | np.number | np.ndarray) or np.size(self._loss) != 1:
            return None
        loss = float(np.asarray(self._loss).item())
        return loss if math.isfinite(loss) else None

    def enter(self, section: str) -> None:
        """From here on, time counts as spent on this."""
        self._sections.enter(section)

    def add_update(self, metrics: dict) -> None:
        """Takes what an update of the agent has measured."""
        self._loss = metrics.get("loss/total", metrics.get("loss", self._loss))
        self._rate.step(1)
        self.add(metrics, "train")

    def add(self, metrics: dict, mode: str) -> None:
        """Takes metrics of the agent in a mode."""
        self._metrics.add(metrics, mode, by_key=self._by_key)

    def send(self, progress: RunProgress) -> None:
        """Sends everything that was measured since the last time."""
        metrics = {
            **self._metrics.result(),
            "learner/updates": progress.updates,
            "learner/updates_per_s": (updates := self._rate.result()),
            "learner/steps_per_s": updates * self._options.batch_size * self._options.batch_length,
        }
        metrics |= prefixed("learner", self._sections.result())
        metrics |= prefixed("learner/replay", self._replay.stats())
        metrics |= prefixed("learner/logger", self._logger.stats())
        self._send(metrics, progress)

    def is_progress_due(self) -> bool:
        return self._should_send_progress()

    def send_progress(self, progress: RunProgress) -> None:
        """Tells where the run stands, and nothing else."""
        self._send({}, progress)
        self.write_progress(progress)

    def write_progress(self, progress: RunProgress) -> None:
        if self._options.remote_logger:  # nobody else writes here what the terminal shows
            with contextlib.suppress(OSError):
                write_progress(self._options.logdir, self._keeper.take_all(progress))

    def _send(self, metrics: dict, progress: RunProgress) -> None:
        meta = RunPosition(progress.counts.inserts, progress, self._by_key).to_meta()
        try:
            future = self._logger.call(protocol.ADD, metrics, meta=meta, deadline_s=LOGGER_PATIENCE_S)
        except DeadlineExceeded as error:
            log.warning("metrics were not logged: %s", error)
        else:
            future.add_done_callback(warn_if_failed)


def warn_if_failed(future: rpc.Future) -> None:
    """For messages that nobody waits for."""
    try:
        future.result()
    except DreamfleetError as error:
        log.warning("%s", error)
