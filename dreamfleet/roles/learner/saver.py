"""Checkpoints of a running fleet: one manifest over the parts of agent, replay and logger."""

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from dreamfleet import lifecycle
from dreamfleet.base import waits
from dreamfleet.checkpoint import Checkpoints, Draft
from dreamfleet.errors import CheckpointError, DreamfleetError, NotSaved
from dreamfleet.roles import protocol
from dreamfleet.roles.protocol import LoggerCounts, ReplayCounts, SaveRequest
from dreamfleet.roles.wiring import Caller

log = logging.getLogger("dreamfleet.checkpoint")

PART_TIMEOUT_S = 120.0  # for a peer to add its part, while the run goes on
RETRIES_S = (1.0, 3.0)  # pauses between attempts at the last checkpoint
LAST_PATIENCE_S = 1.0  # with a peer, in attempts after the first one

Answer = TypeVar("Answer", ReplayCounts, LoggerCounts)  # what a peer says its part stands for


class CheckpointSaver:
    """Writes checkpoints in the background; replay and logger add their own parts to the same draft.

    What the agent has learned is saved also without the part of a peer that is away: after a stop, it is given
    `patience_s` to add it. The counts and the name of a checkpoint are those of the moment of the replay's part.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        peers: dict[str, Caller],
        patience_s: float,
        retries_s: Sequence[float] = RETRIES_S,
        run_id: str = "",
    ):
        self._checkpoints = checkpoints
        self._run_id = run_id
        self._peers = peers  # by the name of their part
        self._patience_s, self._retries_s = patience_s, retries_s
        self._thread: threading.Thread | None = None
        self._failure = ""  # of the last attempt
        self.saved: tuple[int, float] | None = None  # step and time of the last checkpoint of this life

    def save(self, make_state: Callable[[], Any], manifest: dict, known: ReplayCounts) -> None:
        """Starts writing a checkpoint, after the one before is finished; if it fails, the run goes on.

        `known` are the counts for as long as the replay does not say better.
        """
        self.wait()
        with self._telling():
            state = make_state()
            self._thread = lifecycle.spawn(
                self._write_in_background, state, manifest, known, name="checkpoint", daemon=False
            )

    def finish(self, make_state: Callable[[], Any], manifest: dict, known: ReplayCounts) -> None:
        """Writes the last checkpoint, if need be in several attempts; raises NotSaved if all of them fail."""
        self.wait()
        attempts = [(0.0, self._patience_s), *((pause_s, LAST_PATIENCE_S) for pause_s in self._retries_s)]
        with lifecycle.waiting(waits.CHECKPOINT()):
            for pause_s, patience_s in attempts:
                threading.Event().wait(pause_s)
                with self._telling():
                    self._write(make_state(), manifest, known, patience_s)
                    return
        newest = None
        with contextlib.suppress(CheckpointError):
            newest = self._checkpoints.latest(is_deep=False)
        rest = (
            f"the newest is {newest.name}: later updates are lost" if newest else "there is none: all updates are lost"
        )
        raise NotSaved(f"no checkpoint was written at the end of the run ({self._failure}); {rest}")

    def wait(self) -> None:
        """Blocks until nothing is being written."""
        if self._thread:
            with lifecycle.waiting(waits.CHECKPOINT()):
                self._thread.join()

    def _write_in_background(self, agent_state: Any, manifest: dict, known: ReplayCounts) -> None:
        with self._telling():
            self._write(agent_state, manifest, known, self._patience_s)

    def _write(self, agent_state: Any, manifest: dict, known: ReplayCounts, patience_s: float) -> None:
        start = time.monotonic()
        draft = self._checkpoints.draft(known.inserts)
        try:
            asked = self._ask("replay", draft)
            draft.write("agent", agent_state)
            counts = self._receive(ReplayCounts, "replay", asked, patience_s)
            step = (counts or known).inserts
            if not step and not manifest["updates"]:
                draft.abort()
                log.info("no checkpoint is written: the run has no steps yet")
                return
            draft.rename(step)  # before the logger is told its name
            episodes = self._receive(LoggerCounts, "logger", self._ask("logger", draft), patience_s)
            given = {part: answer.to_data() for part, answer in (("replay", counts), ("logger", episodes)) if answer}
            # A plain portal program has no part: it keeps what it has itself.
            asked_for = {part for part, peer in self._peers.items() if not peer.is_plain}
            facts = {"counts": (counts or known).to_data(), "missing": sorted(asked_for - given.keys())}
            score = (episodes or LoggerCounts()).score
            scored = {"score_of": "eval" if episodes and episodes.is_eval else "train"}
            checkpoint = draft.commit({**manifest, **facts, **scored, **given}, score, {"agent", *given}, link="agent")
        except BaseException:
            draft.abort()
            raise
        self._failure = ""
        self.saved = step, time.monotonic()
        without = f" without {' and '.join(facts['missing'])}" if facts["missing"] else ""
        log.info("saved %s%s in %.1f s", checkpoint.name, without, time.monotonic() - start)

    def _ask(self, part: str, draft: Draft) -> Any:
        """Asks for a part; gives a future, or None if nobody has it."""
        if part not in self._peers or self._peers[part].is_plain is not False:  # an unknown method would end others
            return None
        with self._without(part):
            deadline_s = self._patience_s if lifecycle.stopping() else PART_TIMEOUT_S
            request = SaveRequest(draft.name, self._run_id).to_data()
            return self._peers[part].call(protocol.SAVE, request, deadline_s=deadline_s)

    def _receive(self, answer: type[Answer], part: str, future: Any, patience_s: float) -> Answer | None:
        """The answer of a peer that has added its part; a stop makes the wait short."""
        if future is None:
            return None
        with self._without(part), lifecycle.waiting(waits.CHECKPOINT_PART(part=part)):
            woken = threading.Event()
            future.add_done_callback(lambda _: woken.set())
            with lifecycle.on_stop(woken.set):
                woken.wait(PART_TIMEOUT_S)
            return answer.from_data(future.result(patience_s))

    @contextlib.contextmanager
    def _without(self, part: str) -> Iterator[None]:
        """Goes on without a part, for whatever reason it is not there."""
        try:
            yield
        except Exception as error:
            log.warning("the checkpoint is saved without the part of the %s: %s", part, error)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Logs a failure that is another one than before; errors that end the run pass."""
        try:
            yield
        except Exception as error:
            if getattr(error, "is_fatal", False):
                raise
            is_known = isinstance(error, DreamfleetError)
            before, self._failure = self._failure, str(error) if is_known else f"{type(error).__name__}: {error}"
            # Numbers are those of the draft.
            if re.sub(r"\d+", "", before) != re.sub(r"\d+", "", self._failure):
                log.warning("no checkpoint, the one before stays: %s", self._failure, exc_info=not is_known)
