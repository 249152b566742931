"""What a run has stored in a replay of others, which does not say so: counted from what it acknowledges."""

import threading
import weakref
from collections import Counter
from pathlib import Path

from dreamfleet.base.arrays import Batch
from dreamfleet.base.logdir import COUNTS
from dreamfleet.options import RoleOptions
from dreamfleet.roles.hello import stored_counts
from dreamfleet.roles.protocol import ENV_ID, IS_EVAL, ReplayCounts
from dreamfleet.roles.replay.counts import Counts, CountsFile


class Tally:
    """Counts the rows that a plain portal replay has acknowledged, in the file where our own replay keeps its counts.

    The number of sequences is that of a replay that forgets nothing, of the rows since the agent was started: enough to
    know whether there is a batch for a report.
    """

    def __init__(self, options: RoleOptions):
        self._options = options
        self._rows: Counter[int] = Counter()  # by environment
        self._items = {False: 0, True: 0}  # by is_eval
        self._counts = Counts()
        self._file: CountsFile | None = None
        self._lock = threading.Lock()

    def add(self, batch: Batch) -> int:
        """Takes in rows that were acknowledged, all of training or of evaluation; returns the steps of the run."""
        is_eval = bool(batch[IS_EVAL][0])
        with self._lock:
            file = self._open()
            for env_id in batch[ENV_ID].tolist():
                self._rows[env_id] += 1
                self._items[is_eval] += self._rows[env_id] >= self._options.sequence_length
            self._counts.inserts += 0 if is_eval else len(batch[ENV_ID])
            file.write(self._counts)
            return self._counts.inserts

    def counts(self, samples: int) -> ReplayCounts:
        """What our own replay would say, with the samples that the learner knows of."""
        with self._lock:
            self._open()
            self._counts.samples = samples
            return ReplayCounts(self._counts.inserts, samples, self._items[False], self._items[True])

    def _open(self) -> CountsFile:
        """Continues from what was counted before; not earlier, as with a replay of ours the file is that role's."""
        if self._file is None:
            self._file = CountsFile(Path(self._options.logdir) / COUNTS)
            self._counts.inserts = max(self._file.read().inserts, stored_counts(self._options).inserts)
        return self._file


_tallies: weakref.WeakKeyDictionary[threading.Barrier, Tally] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def shared_tally(barrier: threading.Barrier, options: RoleOptions) -> Tally:
    """The one tally of the two sides that meet at a barrier: the actor counts, and the learner goes by it."""
    with _lock:
        return _tallies.setdefault(barrier, Tally(options))
