"""Batches for the learner: rows, or references to rows for one that can map them; and those it may ask for again."""

import logging
from collections.abc import Callable, Iterator, Mapping

from dreamfleet import rpc
from dreamfleet.errors import BadRequest, NeedsRows, ReplayError
from dreamfleet.replay import Batch
from dreamfleet.replay.references import reader_place, reference_batches
from dreamfleet.roles.protocol import STEP_ID, ReaderPlace, SampleRequest, SegmentPlaces
from dreamfleet.roles.replay.buffer import Buffer

log = logging.getLogger("dreamfleet.replay")

MOST_SENT = 64  # batches that a learner may have asked for and not acknowledged: it has a few under way at a time


class BatchStreams:
    """One stream a mode, and another of references where they are of use.

    An error in a stream is the stream's own and reaches whoever asked for the batch; the next call begins a new stream.
    """

    def __init__(self, make_stream: Callable, buffers: Mapping[str, Buffer]):
        self.references = 0  # batches handed out as references
        self._make_stream = make_stream
        self._buffers = buffers
        self._streams: dict[tuple[str, bool], Iterator[Batch]] = {}  # by mode, and whether they are of references
        self._needs_rows: set[str] = set()  # modes

    def next(self, mode: str, reader: ReaderPlace | None) -> tuple[Batch, SegmentPlaces | None]:
        """A batch of rows; or one of references, with where they are to be found."""
        replay = self._buffers[mode].references
        if replay is not None and mode not in self._needs_rows and _is_near(reader):
            try:
                batch = self._advance(mode, is_near=True)
            except NeedsRows as reason:
                log.info("sending rows instead of references: %s", reason)
                self._needs_rows.add(mode)
            else:
                self.references += 1
                return batch, SegmentPlaces(replay.paths(batch[STEP_ID]), replay.oldest)
        return self._advance(mode, is_near=False), None

    def restart(self, mode: str) -> None:
        """Begins new streams: chunks that continue a sequence are of no use to a learner that starts."""
        for is_near in (True, False):
            self._streams.pop((mode, is_near), None)

    def _advance(self, mode: str, is_near: bool) -> Batch:
        stream = self._streams.pop((mode, is_near), None)
        if stream is None:
            stream = self._open(mode, is_near)
        batch = next(stream, None)
        if batch is None:
            raise ReplayError(f"the stream of {mode} batches ended; make_stream must return an endless iterator")
        self._streams[mode, is_near] = stream
        return batch

    def _open(self, mode: str, is_near: bool) -> Iterator[Batch]:
        buffer = self._buffers[mode]
        if is_near and buffer.references is not None:
            return reference_batches(self._make_stream, buffer.references, mode)
        return iter(self._make_stream(buffer.replay, mode))


class SentBatches:
    """Batches that a learner may not have received: a call that is repeated gets what was lost, counted once.

    The learner says which call this is, and up to which it has answers.
    """

    def __init__(self):
        self._learner = ""
        self._replies: dict[int, rpc.Reply] = {}

    def find(self, request: SampleRequest) -> rpc.Reply | None:
        """The answer that this very call had before."""
        if not request.learner:
            return None
        is_same, self._learner = self._learner == request.learner, request.learner
        replies = self._replies.items() if is_same else ()
        self._replies = {number: reply for number, reply in replies if number > request.received}
        if len(self._replies) >= MOST_SENT and request.number not in self._replies:
            raise BadRequest(f"'received' is {request.received}: the last {MOST_SENT} batches are not acknowledged")
        return self._replies.get(request.number)

    def keep(self, request: SampleRequest, reply: rpc.Reply) -> rpc.Reply:
        if request.learner:
            self._replies[request.number] = reply
        return reply


def _is_near(reader: ReaderPlace | None) -> bool:
    """Whether a reader can map the segments of a replay here, and would have to."""
    here = ReaderPlace.from_meta(reader_place())
    return reader is not None and reader.boot == here.boot and reader.pid != here.pid
