"""Batches from a remote replay, requested ahead of time, and the source of an agent's stream that is made of them."""

import itertools
import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from dreamfleet import lifecycle, rpc
from dreamfleet.base import waits
from dreamfleet.errors import DeadlineExceeded
from dreamfleet.replay import Batch
from dreamfleet.replay.references import Reader, reader_place
from dreamfleet.roles.protocol import SAMPLE_BATCH, ReaderPlace, ReplayCounts, SampleInfo, SampleRequest, SegmentPlaces
from dreamfleet.roles.wiring import Caller

log = logging.getLogger("dreamfleet.learner")

WAIT_S = 1.0  # how long the replay holds a request that it cannot serve yet
MOST_MISSES = 3  # in a row, after which rows are asked for instead of references


def parallel_stream(
    replay: Caller,
    mode: str,
    *,
    prefetch: int = 2,
    on_counts: Callable[[ReplayCounts], None] = lambda _: None,
    is_over: Callable[[], bool] = lifecycle.stopping,
    updates: int | None = None,
    wait_s: float = WAIT_S,
) -> Iterator[Batch]:
    """Yields batches of a mode (train, report or eval) in order, requested ahead of time, until the run is over.

    `updates` is where the learner stands when it starts: replay counts its samples from there.
    """
    resolver = Resolver()
    requests = BatchRequests(replay, mode, prefetch, wait_s)

    def fetch() -> Batch | None:
        while not is_over():
            requests.fill(resolver.place)
            answer = requests.receive()
            if answer is None:
                continue  # looks again whether the run is over
            data, info = answer
            on_counts(info.counts)
            if info.is_pending or is_over():
                continue
            batch = resolver.resolve(data, info.references)
            if batch is not None:
                return batch
            requests.send(resolver.place, again=True)  # in place of one that was counted but is gone
        return None

    if updates is not None:
        requests.send(resolver.place, updates=updates)
    while True:
        with lifecycle.waiting(waits.BATCH(mode=mode)):
            batch = fetch()
        if batch is None:
            return
        yield batch


class BatchSource:
    """What an agent's stream reads from: batches without end, for any thread.

    An agent may read in threads of its own in which anything that is raised ends the process, StopIteration too. There
    the source neither ends nor fails: once it is closed, or has failed, whoever asks waits for good. Only the thread
    that trains, which made the source, is told in the usual way.
    """

    def __init__(self, batches: Iterator[Batch], on_failure: Callable[[BaseException], None]):
        self._batches = batches
        self._on_failure = on_failure  # hears what another thread must not
        self._trainer = threading.get_ident()
        self._reading = threading.Lock()

    def __iter__(self) -> "BatchSource":
        return self

    def __next__(self) -> Batch:
        if threading.get_ident() == self._trainer:
            return next(self._batches)
        try:
            with self._reading:  # several threads may read, one at a time
                return next(self._batches)
        except StopIteration:
            pass
        except BaseException as error:
            self._on_failure(error)
        threading.Event().wait()  # such threads end with the process
        raise AssertionError("unreachable")

    def wait_unread(self) -> None:
        """Returns when no other thread is reading; to be called when the batches have come to their end."""
        with self._reading:
            pass

    # Streams that keep their place ask their source for its own; batches are drawn anew after a restart.

    def save(self) -> None:
        return None

    def load(self, data: Any) -> None:
        pass


class BatchRequests:
    """Requests for batches under way, answered in order."""

    def __init__(self, replay: Caller, mode: str, prefetch: int, wait_s: float):
        self._replay, self._method = replay, SAMPLE_BATCH[mode]
        self._prefetch, self._wait_s = prefetch, wait_s
        self._learner, self._numbers = f"{replay.session}:{uuid.uuid4().hex[:16]}", itertools.count()
        self._pending: deque[rpc.Future] = deque()

    def fill(self, reader: ReaderPlace | None) -> None:
        """Sends as many as are wanted ahead."""
        while len(self._pending) < self._prefetch:
            self.send(reader)

    def send(self, reader: ReaderPlace | None, updates: int | None = None, again: bool = False) -> None:
        number = next(self._numbers)
        # All before those that are under way were answered. Replay knows from this which batches to keep.
        received = number - len(self._pending) - 1
        request = SampleRequest(
            wait_s=self._wait_s,
            learner=self._learner,
            number=number,
            received=received,
            updates=updates,
            again=again,
            reader=reader,
        )
        self._pending.append(self._replay.call(self._method, meta=request.to_meta()))

    def receive(self) -> tuple[Batch, SampleInfo] | None:
        """The answer to the oldest request, or None if it is late."""
        try:
            data = self._pending[0].result(2 * self._wait_s)
        except DeadlineExceeded:
            return None
        return data, SampleInfo.from_meta(self._pending.popleft().meta)


class Resolver:
    """Turns references into rows; goes over to rows by itself where references do not work."""

    def __init__(self):
        self._reader: Reader | None = Reader()
        self._misses = 0
        self._skips_to_start = False

    @property
    def place(self) -> ReaderPlace | None:
        """What to tell the replay, so that it sends references if they are of use here."""
        return ReaderPlace.from_meta(reader_place()) if self._reader else None

    def resolve(self, batch: Batch, references: SegmentPlaces | None) -> Batch | None:
        """The rows of a batch, or None if they are gone."""
        rows = batch if references is None else self._read(batch, references)
        if rows is None:
            self._skips_to_start = True
        # After a missing chunk, those that continue it are of no use.
        if self._skips_to_start and (rows is None or rows["consec"].any()):
            return None
        self._skips_to_start = False
        return rows

    def _read(self, batch: Batch, references: SegmentPlaces) -> Batch | None:
        rows = self._reader.read(batch, references.paths, references.oldest) if self._reader else None
        self._misses = self._misses + 1 if rows is None else 0
        if self._misses >= MOST_MISSES and self._reader:
            log.warning("cannot map the replay buffer's segments; requesting rows instead")
            self._reader = None
        return rows
