"""The logger: collects metrics and episodes from everyone and writes them; whoever shows a run reads what it wrote."""

import contextlib
import logging
import reprlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dreamfleet import lifecycle
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import BadRequest
from dreamfleet.metrics import Aggregator, Episode, EpisodeTracker, Rate, read_progress, write_progress
from dreamfleet.metrics.values import can_show
from dreamfleet.metrics.writers import EVAL_KINDS
from dreamfleet.options import Args, RoleOptions, read_args
from dreamfleet.roles import protocol
from dreamfleet.roles.hello import Reception, is_elsewhere, make_hello
from dreamfleet.roles.periodic import Every, make_usage
from dreamfleet.roles.progress import ProgressKeeper
from dreamfleet.roles.protocol import ENV_ID, IS_EVAL, LoggerCounts, LogPosition, RunPosition, SaveRequest
from dreamfleet.roles.transitions import read_rows
from dreamfleet.roles.wiring import Handler, load_factory, serve

log = logging.getLogger("dreamfleet.logger")

PROGRESS_EVERY_S = 1.0
SCORE_EPISODES = 20  # the score shown is the mean of this many
NEW_EPISODES = 10  # the least of them since the checkpoint before, for the score of a checkpoint
NAME_LENGTH = 180  # of a metric; `elements.Logger` takes 200, with what we put in front
ADD_METRICS = 1000  # that it takes at once
MOST_METRICS = 10_000  # names between two writes


@lifecycle.stopped_by_signals()
def parallel_logger(make_logger: bytes | Callable, args: Args) -> None:
    """Serves `add` and `tran` until the process is asked to stop, then writes what is left."""
    options = read_args(args)
    role = LoggerRole(load_factory(make_logger)(), options)
    role.restore(Checkpoints(options.logdir))
    role.resume()
    server = serve(options, "logger", role.methods(), Reception(options, lambda: make_hello(options, "logger")))
    should_write = Every(options.log_every)
    usage = make_usage(options)
    with server:
        lifecycle.set_state("running")
        while not lifecycle.wait_stop(PROGRESS_EVERY_S):
            role.write_progress()
            if should_write():
                role.add(server.stats(), {}, prefix="logger")
                role.add(usage(), {}, prefix="logger/usage")
                role.write()
    role.close()


class LoggerRole:
    """Metrics, episodes and progress of the run, from messages that may come from several threads."""

    def __init__(self, logger: Any, options: RoleOptions):
        self._logger = logger
        self._options = options
        self._metrics = Aggregator()
        self._episodes = EpisodeTracker(options.episode_timeout)
        self._env_rate = Rate()
        self._keeper = ProgressKeeper(options)
        self._progress = self._keeper.progress
        self._scores = {is_eval: deque(maxlen=SCORE_EPISODES) for is_eval in (False, True)}
        self._lengths: deque[int] = deque(maxlen=SCORE_EPISODES)  # of training
        self._unscored = {False: 0, True: 0}  # by is_eval, episodes since the last checkpoint with a score
        self._counted: dict[str, int] = {}  # episodes, at the last write
        self._keeps_episodes = getattr(logger, "keeps_episodes", False)  # all of those that end at one step
        # Loggers of others pick the scores of training out by looking for `episode/score` anywhere in a name.
        self._eval_kind = EVAL_KINDS[0 if self._keeps_episodes else 1]
        self._unwritten: set[tuple[str, int]] = set()  # kinds and steps of episodes since then, if it does not
        self._can_write = True
        self._lock = threading.Lock()

    def methods(self) -> dict[str, Handler]:
        """What the server answers to, as functions of data and metadata."""
        return {protocol.ADD: self.add, protocol.TRAN: self.tran, protocol.SAVE: self.save}

    def add(self, metrics: Any, meta: dict, prefix: str = "") -> dict:
        """Takes in metrics of any role; they are averaged until the next write."""
        metrics = _read_metrics(metrics)
        position = RunPosition.from_meta(meta)
        with self._lock:
            if len(self._metrics) + len(metrics) > MOST_METRICS:
                raise BadRequest(f"{len(metrics)} metrics are too many beside {len(self._metrics)} others")
            self._metrics.add(metrics, prefix, position.by_key)
            if position.progress:
                self._keeper.take(position.progress)
            self._advance(position.step)
        return {}

    def tran(self, batch: Any, meta: dict) -> dict:
        """Takes in one row of each of several environments and logs the episodes that end with it."""
        arrays, env_ids, is_eval = read_rows(batch, "reward", "is_first", "is_last")
        position = LogPosition.from_meta(meta)
        with self._lock:
            if position.gap:
                self._episodes.forget()
            rows = int((~is_eval).sum())
            self._env_rate.step(rows)
            self._advance(self._progress.step + rows if position.step is None else position.step)
            for episode in self._episodes.add({**arrays, ENV_ID: env_ids, IS_EVAL: is_eval}):
                self._log_episode(episode)
        return {}

    def save(self, data: Any, _: dict) -> dict:
        """Adds the logger's state to a checkpoint draft."""
        request = SaveRequest.from_data(data)
        with self._lock:
            state = {
                "episodes": self._progress.episodes,
                "updates": self._progress.updates,
                "scores": [[float(x) for x in self._scores[is_eval]] for is_eval in (False, True)],
            }
            is_eval = bool(self._scores[True])
            score = self._take_score(is_eval)
        checkpoints = Checkpoints(self._options.logdir, self._options.keep)
        checkpoints.add_part(request.name, "logger", state, is_elsewhere(self._options.logdir, request.run))
        return LoggerCounts(state["episodes"], score, is_eval).to_data()

    def _take_score(self, is_eval: bool) -> float | None:
        """The score of a checkpoint, if there were enough episodes since the one before."""
        if self._unscored[is_eval] < NEW_EPISODES:
            return None
        self._unscored[is_eval] = 0
        return float(np.mean(self._scores[is_eval]))

    def restore(self, checkpoints: Checkpoints) -> None:
        """Continues the counts of the newest checkpoint, if there is one."""
        checkpoint = checkpoints.latest("logger")
        if checkpoint is None:
            return
        state = checkpoint.read("logger")
        self._progress.episodes = state["episodes"]
        for is_eval, scores in zip((False, True), state["scores"], strict=True):
            self._scores[is_eval].extend(scores)
        # A logger elsewhere has checkpoints of its own, which say no more than it knew itself.
        self._progress.updates = checkpoint.manifest.get("updates", state.get("updates", 0))
        self._advance(checkpoint.step)

    def resume(self) -> None:
        """Continues at what was shown last: a parallel run keeps the steps that came after its last checkpoint."""
        if shown := read_progress(self._options.logdir):
            self._progress.episodes = max(shown.episodes, self._progress.episodes)
            self._progress.updates = max(shown.updates, self._progress.updates)
            self._advance(shown.step)

    def write(self) -> None:
        """Hands everything gathered since the last time to the writers."""
        with self._lock, self._surviving():
            frames = self._progress.step * self._options.action_repeat
            counts = {"frames": frames, **self._count_episodes()}
            for part in _parts({**self._metrics.result(), **counts}, ADD_METRICS):
                self._logger.add(part)
            self._logger.write()
            self._unwritten.clear()
            lifecycle.progress()

    def write_progress(self) -> None:
        """Updates `progress.json`."""
        with self._lock, self._surviving():
            progress = self._progress
            progress.env_rate = self._env_rate.result()
            for is_eval, name in ((False, "score"), (True, "eval_score")):
                if self._scores[is_eval]:
                    setattr(progress, name, float(np.mean(self._scores[is_eval])))
            if self._lengths:
                progress.episode_length = float(np.mean(self._lengths))
            self._keeper.estimate()
            write_progress(self._options.logdir, progress)

    def close(self) -> None:
        """Writes what is left."""
        self.write_progress()
        self.write()
        if hasattr(self._logger, "close"):
            self._logger.close()

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        """A disk that is full for a while costs metrics of that time, and nothing else."""
        try:
            yield
            self._can_write = True
        except OSError as error:
            if self._can_write:
                log.warning("metrics cannot be written, dropping them until they can: %s", error)
            self._can_write = False

    def _advance(self, step: int) -> None:
        """Takes the run to be at this step; without environments there are none, and metrics go by updates."""
        progress = self._progress
        progress.step = max(step, progress.step)
        counter: Any = getattr(self._logger, "step", None)
        if hasattr(counter, "load"):
            counter.load(progress.updates if self._options.is_offline else progress.step)

    def _count_episodes(self) -> dict[str, int]:
        """Episodes that started, ended and were abandoned since the last time."""
        tracker, before = self._episodes, self._counted
        self._counted = {"starts": tracker.starts, "ends": tracker.ends, "abandoned": tracker.abandoned}
        return {f"episodes/{key}": count - before.get(key, 0) for key, count in self._counted.items()}

    def _log_episode(self, episode: Episode) -> None:
        self._progress.episodes += 1
        self._scores[episode.is_eval].append(episode.score)
        self._unscored[episode.is_eval] += 1
        if not episode.is_eval:
            self._lengths.append(episode.length)
        metrics = {"score": episode.score, "length": episode.length, **episode.stats}
        if episode.video is not None:
            metrics["video"] = episode.video
        kind = self._eval_kind if episode.is_eval else "episode"
        if (kind, self._progress.step) in self._unwritten:
            # Outputs of others may keep one value per key and step: the one before is written first.
            with self._surviving():
                self._logger.write()
            self._unwritten.clear()
        if not self._keeps_episodes:
            self._unwritten.add((kind, self._progress.step))
        self._logger.add(metrics, prefix=kind)


def _read_metrics(metrics: Any) -> dict[str, Any]:
    """What of a message of metrics can be logged: anybody's metrics may end up here, and one must not cost the rest."""
    if not isinstance(metrics, dict):
        raise BadRequest(f"metrics are a dict of names and values, not {type(metrics).__name__}")
    if bad := [name for name in metrics if type(name) is not str or not 0 < len(name) <= NAME_LENGTH]:
        raise BadRequest(f"a metric has a name of 1 to {NAME_LENGTH} characters; got {reprlib.repr(bad[0])}")
    return {name: value for name, value in metrics.items() if can_show(value)}


def _parts(metrics: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    items = list(metrics.items())
    for start in range(0, len(items), size):
        yield dict(items[start : start + size])
