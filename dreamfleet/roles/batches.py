"""Batches from a remote replay, requested ahead of time."""

from collections import deque
from collections.abc import Callable, Iterator

from dreamfleet import rpc
from dreamfleet.errors import DeadlineExceeded
from dreamfleet.replay import Batch
from dreamfleet.roles.wiring import Caller

WAIT_S = 1.0  # how long the replay holds a request that it cannot serve yet


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
    meta = {"wait_s": wait_s}
    requests: deque[rpc.Future] = deque()
    if updates is not None:
        requests.append(replay.call(f"sample_batch_{mode}", meta={**meta, "updates": updates}, repeat=True))
    while not is_over():
        while len(requests) < prefetch:
            requests.append(replay.call(f"sample_batch_{mode}", meta=meta, repeat=True))
        try:
            batch = requests[0].result(2 * wait_s)
        except DeadlineExceeded:
            continue  # looks again whether the run is over
        reply_meta = requests.popleft().meta
        on_counts(reply_meta)
        if not reply_meta.get("is_pending") and not is_over():
            yield batch
