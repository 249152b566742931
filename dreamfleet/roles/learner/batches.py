"""Batches from a remote replay, requested ahead of time."""

import itertools
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterator

from dreamfleet import lifecycle, rpc
from dreamfleet.errors import DeadlineExceeded
from dreamfleet.replay import Batch
from dreamfleet.replay.references import Reader, reader_place
from dreamfleet.roles.wiring import Caller

log = logging.getLogger("dreamfleet.learner")

WAIT_S = 1.0  # how long the replay holds a request that it cannot serve yet
MOST_MISSES = 3  # in a row, after which rows are asked for instead of references


def remote_batches(
    replay: Caller,
    mode: str,
    *,
    prefetch: int,
    on_counts: Callable[[dict], None],
    is_over: Callable[[], bool],
    updates: int | None = None,
    wait_s: float = WAIT_S,
) -> Iterator[Batch]:
    """Yields batches of a mode in order until the run is over.

    `updates` is where the learner stands when it starts: replay counts its samples from there.
    """
    resolver = Resolver()
    requests: deque[rpc.Future] = deque()
    learner, numbers = uuid.uuid4().hex, itertools.count()

    def request(**extra: object) -> None:
        number = next(numbers)
        # All before those that are under way were answered. Replay knows from this which batches to keep.
        received = number - len(requests) - 1
        call = {"learner": learner, "number": number, "received": received}
        meta = {"wait_s": wait_s, **call, **resolver.offer(), **extra}
        requests.append(replay.call(f"sample_batch_{mode}", meta=meta, repeat=True))

    def fetch() -> Batch | None:
        while not is_over():
            while len(requests) < prefetch:
                request()
            try:
                reply = requests[0].result(2 * wait_s)
            except DeadlineExceeded:
                continue  # looks again whether the run is over
            reply_meta = requests.popleft().meta
            on_counts(reply_meta)
            if reply_meta.get("is_pending") or is_over():
                continue
            batch = resolver.resolve(reply, reply_meta)
            if batch is not None:
                return batch
            request(again=True)  # in place of one that was counted but is gone
        return None

    if updates is not None:
        request(updates=updates)
    while True:
        with lifecycle.waiting(f"replay: a {mode} batch"):
            batch = fetch()
        if batch is None:
            return
        yield batch


class Resolver:
    """Turns references into rows; goes over to rows by itself where references do not work."""

    def __init__(self):
        self._reader: Reader | None = Reader()
        self._misses = 0
        self._skips_to_start = False

    def offer(self) -> dict:
        """What to tell the replay, so that it sends references if they are of use here."""
        return {"reader": reader_place()} if self._reader else {}

    def resolve(self, batch: Batch, meta: dict) -> Batch | None:
        """The rows of a batch, or None if they are gone."""
        if "paths" in meta:
            rows = self._reader.read(batch, meta["paths"], meta["oldest"]) if self._reader else None
            self._note(rows is None)
        else:
            rows = batch
        if rows is None:
            self._skips_to_start = True
        # After a missing chunk, those that continue it are of no use.
        if self._skips_to_start and (rows is None or rows["consec"].any()):
            return None
        self._skips_to_start = False
        return rows

    def _note(self, is_miss: bool) -> None:
        self._misses = self._misses + 1 if is_miss else 0
        if self._misses >= MOST_MISSES and self._reader:
            log.warning("the replay's segments cannot be read from here; rows are asked for instead")
            self._reader = None
