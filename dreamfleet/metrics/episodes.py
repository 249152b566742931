"""Turns the logger's transitions into finished episodes; called by the logger role for every batch that arrives."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dreamfleet.base.arrays import Batch
from dreamfleet.base.dimensions import MOST_ENVS
from dreamfleet.base.keys import is_logged
from dreamfleet.metrics.video_recorder import VideoRecorder

REWARD_CHANGE = 0.01  # from one step to the next, from which on it counts for `reward_rate`
QUIET_S = 1.0  # with environments at work, somebody's rows come within this time
MOST_STATS, STAT_LENGTH = 300, 160  # `log/` keys, and characters of one: loggers take a thousand names of 200


@dataclasses.dataclass(frozen=True, slots=True)
class Episode:
    """A finished episode; `stats` sums up its `log/` keys, `video` holds its frames (T, H, W, C) if it was recorded."""

    env_id: int
    is_eval: bool
    score: float
    length: int
    stats: dict[str, float]
    video: np.ndarray | None = None


class EpisodeTracker:
    """Follows the episodes of all environments, a whole batch at a time.

    An episode counts only if its first row was seen. One that starts anew before its end, or whose environment is
    silent for longer than `timeout_s` while others are not, is dropped and counted as abandoned. Of the first
    training and the first evaluation environment that have images, one episode is recorded every `video_every_s`.
    """

    def __init__(
        self,
        timeout_s: float,
        video_every_s: float = 300.0,
        max_frames: int = 500,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.starts = self.ends = self.abandoned = 0
        self._timeout_s = timeout_s
        self._clock = clock
        self._last = clock()  # that any row came
        self._next_sweep = self._last + timeout_s
        self._recorders = {is_eval: VideoRecorder(video_every_s, max_frames) for is_eval in (False, True)}
        self._slots: dict[int, int] = {}  # env_id -> index into the arrays below and those of every column
        self._free: list[int] = []
        self._running = np.zeros(0, bool)
        self._seen = np.zeros(0)  # time of the last row
        self._row = np.zeros(0, np.int64)  # scratch of _turns
        self._columns: dict[str, _Column] = {}  # reward and log/ keys
        self._reward = np.zeros(0)  # of the last row
        self._reward_changes = np.zeros(0, np.int64)

    def add(self, batch: Mapping[str, np.ndarray]) -> list[Episode]:
        """Takes in rows with `envid, is_eval, reward, is_first, is_last` and returns the episodes that they end."""
        now = self._clock()
        if now - self._last > QUIET_S:  # all of them waited, such as for a policy that compiles: nobody was silent
            self._seen += now - self._last
        self._last = now
        if now >= self._next_sweep:
            self._sweep(now)
        rows = {key: np.asarray(batch[key]) for key in ("envid", "is_eval", "is_first", "is_last", "reward")}
        rows["is_first"], rows["is_last"] = rows["is_first"].astype(bool), rows["is_last"].astype(bool)
        count = len(rows["envid"])
        images = [key for key, value in batch.items() if _is_image(value, count)]
        columns = ["reward", *(key for key, value in batch.items() if self._is_kept(key, value, count))]
        rows |= {key: batch[key] for key in (*images, *columns[1:])}
        rows["slot"] = self._find_slots(rows["envid"].tolist(), now)
        rows["is_changed"] = self._find_changes(rows)
        episodes = []
        for turn in self._turns(rows):
            episodes += self._advance(turn, columns, images, now)
        return episodes

    def forget(self) -> None:
        """Drops all running episodes, because rows were lost."""
        self._running[:] = False
        for recorder in self._recorders.values():
            recorder.cut()

    def _advance(self, rows: Batch, columns: list[str], images: list[str], now: float) -> list[Episode]:
        # Every environment has at most one row here, so that indexing by slot never hits a place twice.
        slots, is_first, is_last = rows["slot"], rows["is_first"], rows["is_last"]
        if is_first.any():
            self._start(slots[is_first])
        self._seen[slots] = now
        self._reward_changes[slots] += rows["is_changed"]
        for key in columns:
            self._column(key).add(slots, rows[key])
        if images:
            self._record(rows, rows[min(images)], now)
        if not is_last.any():
            return []
        ended = np.flatnonzero(is_last & self._running[slots])
        self.ends += len(ended)
        self._running[slots[ended]] = False
        return [self._finish(rows, row, now) for row in ended.tolist()]

    def _find_changes(self, rows: Batch) -> np.ndarray:
        """Which rows have another reward than the row before of the same environment, in the same episode."""
        slots, rewards = rows["slot"], rows["reward"].astype(np.float64)
        order = np.argsort(slots, kind="stable")
        is_same = slots[order][1:] == slots[order][:-1]
        before = self._reward[slots]
        before[order[1:][is_same]] = rewards[order[:-1][is_same]]
        self._reward[slots[order]] = rewards[order]  # the last of each counts
        return ~rows["is_first"] & (np.abs(rewards - before) >= REWARD_CHANGE)

    def _start(self, slots: np.ndarray) -> None:
        self.starts += len(slots)
        self.abandoned += int(self._running[slots].sum())
        self._running[slots] = True
        self._reward_changes[slots] = 0
        for column in self._columns.values():
            column.clear(slots)

    def _finish(self, rows: Batch, row: int, now: float) -> Episode:
        slot, env_id, is_eval = int(rows["slot"][row]), int(rows["envid"][row]), bool(rows["is_eval"][row])
        stats = {}
        for key, column in self._columns.items():
            if key != "reward" and column.count[slot]:
                stats[f"{key}/avg"] = float(column.sum[slot] / column.count[slot])
                stats[f"{key}/max"] = float(column.max[slot])
                stats[f"{key}/sum"] = float(column.sum[slot])
        reward, recorder = self._columns["reward"], self._recorders[is_eval]
        video = recorder.finish(now) if recorder.env_id == env_id else None
        length = int(reward.count[slot]) - 1  # the row of the reset is no step
        if length:
            stats["reward_rate"] = float(self._reward_changes[slot] / length)
        return Episode(env_id, is_eval, float(reward.sum[slot]), length, stats, video)

    def _record(self, rows: Batch, images: np.ndarray, now: float) -> None:
        for is_eval, recorder in self._recorders.items():
            candidates = np.flatnonzero(rows["is_eval"] == is_eval)
            if not candidates.size:
                continue
            row = candidates[rows["envid"][candidates].argmin()]
            env_id = int(rows["envid"][row])
            if recorder.env_id is None or env_id < recorder.env_id:
                recorder.follow(env_id)
            if env_id == recorder.env_id:
                recorder.add(images[row], bool(rows["is_first"][row]), now)

    def _turns(self, rows: Batch) -> Iterator[Batch]:
        # An environment that is in the batch more than once has its rows taken in one turn after the other.
        slots = rows["slot"]
        order = np.arange(len(slots))
        self._row[slots] = order
        if (self._row[slots] == order).all():
            yield rows
            return
        turns: list[list[int]] = []
        counts: dict[int, int] = {}
        for row, slot in enumerate(slots.tolist()):
            turn = counts[slot] = counts.get(slot, -1) + 1
            if turn == len(turns):
                turns.append([])
            turns[turn].append(row)
        for turn in turns:
            yield {key: values[turn] for key, values in rows.items()}

    def _find_slots(self, env_ids: list[int], now: float) -> np.ndarray:
        slots = []
        for env_id in env_ids:
            slot = self._slots.get(env_id)
            if slot is None:
                if len(self._slots) >= MOST_ENVS:
                    self._make_room()
                slot = self._slots[env_id] = self._free.pop() if self._free else self._new_slot()
                self._seen[slot] = now
            slots.append(slot)
        return np.array(slots, np.int64)

    def _make_room(self) -> None:
        """Forgets the quarter of all environments that has been silent for the longest time."""
        by_age = sorted(self._slots.items(), key=lambda pair: self._seen[pair[1]])
        for env_id, slot in by_age[: MOST_ENVS // 4]:
            self._drop(env_id, slot)

    def _new_slot(self) -> int:
        slot = len(self._slots)
        if slot == len(self._running):
            self._running, self._seen, self._row = map(_double, (self._running, self._seen, self._row))
            self._reward, self._reward_changes = map(_double, (self._reward, self._reward_changes))
            for column in self._columns.values():
                column.grow()
        return slot

    def _is_kept(self, key: str, value: np.ndarray, rows: int) -> bool:
        """Whether a key is a statistic, of which there is not an endless number."""
        return _is_stat(key, value, rows) and (key in self._columns or len(self._columns) < MOST_STATS)

    def _column(self, key: str) -> "_Column":
        if key not in self._columns:
            self._columns[key] = _Column(len(self._running))
        return self._columns[key]

    def _sweep(self, now: float) -> None:
        self._next_sweep = now + self._timeout_s / 4
        for env_id, slot in list(self._slots.items()):
            if now - self._seen[slot] > self._timeout_s:
                self._drop(env_id, slot)

    def _drop(self, env_id: int, slot: int) -> None:
        self.abandoned += int(self._running[slot])
        self._running[slot] = False
        self._free.append(self._slots.pop(env_id))
        for recorder in self._recorders.values():
            if recorder.env_id == env_id:
                recorder.follow(None)


class _Column:
    """Sum, count and maximum of one key, with a place for every environment."""

    def __init__(self, capacity: int):
        self.sum = np.zeros(capacity)
        self.count = np.zeros(capacity, np.int64)
        self.max = np.full(capacity, -np.inf)

    def add(self, slots: np.ndarray, values: np.ndarray) -> None:
        self.sum[slots] += values
        self.count[slots] += 1
        self.max[slots] = np.maximum(self.max[slots], values)

    def clear(self, slots: np.ndarray) -> None:
        self.sum[slots] = 0.0
        self.count[slots] = 0
        self.max[slots] = -np.inf

    def grow(self) -> None:
        self.sum, self.count, self.max = map(_double, (self.sum, self.count, self.max))


def _double(array: np.ndarray) -> np.ndarray:
    # What the new places hold does not matter: a place is cleared when an episode starts in it.
    return np.pad(array, (0, max(64, len(array))))


def _is_stat(key: str, value: object, rows: int) -> bool:
    is_scalar = isinstance(value, np.ndarray) and value.shape == (rows,) and value.dtype.kind in "biuf"
    return is_scalar and is_logged(key) and len(key) <= STAT_LENGTH


def _is_image(value: object, rows: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 4 and len(value) == rows
