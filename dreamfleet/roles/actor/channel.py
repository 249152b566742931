"""Ordered delivery of batches to another role, joined into larger messages."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable

from dreamfleet import lifecycle, rpc
from dreamfleet.agent.contract import Batch
from dreamfleet.base import waits
from dreamfleet.errors import Closed
from dreamfleet.roles.protocol import ENV_ID, IS_EVAL
from dreamfleet.roles.transitions import join_rows
from dreamfleet.roles.wiring import Caller

FULL_ROWS = 256  # a message with as many rows does not wait for more


class Channel:
    """Sends batches of rows with one method of a client; at most `backlog` of them are unacknowledged.

    A small message costs as much as a large one, so a batch waits up to `delay_s` for others to be sent with it;
    without a delay it is sent at once by whoever brings it. `on_done` gets the outcome and rows of every message.
    """

    def __init__(
        self,
        client: Caller,
        method: str,
        *,
        backlog: int,
        delay_s: float,
        make_meta: Callable[[], dict],
        on_done: Callable[[rpc.Future, Batch], None],
    ):
        self._client = client
        self._method = method
        self._backlog = backlog
        self._delay_s = delay_s
        self._make_meta = make_meta
        self._on_done = on_done
        self._waiting: list[Batch] = []
        self._waiting_rows = 0
        self._unacknowledged = 0  # batches
        self._unacknowledged_rows = 0
        self._is_closed = False
        self._is_draining = False
        lock = threading.RLock()
        self._changed = threading.Condition(lock)  # for whoever waits for room
        self._arrived = threading.Condition(lock)  # for the sending thread
        self._thread = lifecycle.spawn(self._run, name=f"{method}-channel") if delay_s else None

    @property
    def unacknowledged(self) -> int:
        return self._unacknowledged

    @property
    def unacknowledged_rows(self) -> int:
        return self._unacknowledged_rows

    def put(self, batch: Batch, timeout_s: float | None = None) -> bool:
        """Takes a batch as soon as there is room; returns whether there was within the timeout."""
        with self._changed:
            if not self._has_room() and not self._wait(
                self._has_room, timeout_s, waits.ROOM(peer=self._client.peer, method="transitions")
            ):
                return False
            self._waiting.append(batch)
            self._unacknowledged += 1
            self._unacknowledged_rows += len(batch[ENV_ID])
            self._waiting_rows += len(batch[ENV_ID])
            if self._delay_s and (len(self._waiting) == 1 or self._waiting_rows >= FULL_ROWS):
                self._arrived.notify()
        if not self._delay_s:
            self._send(self._take())
        return True

    def wait_while(self, condition: Callable[[], bool], what: str) -> None:
        """Blocks as long as the condition holds, which is looked at after every acknowledgement, or until closed."""
        with self._changed:
            if condition() and not self._is_closed:
                self._wait(lambda: self._is_closed or not condition(), None, what)

    def is_now(self, condition: Callable[[], bool]) -> bool:
        """Whether a condition holds, between two acknowledgements."""
        with self._changed:
            return condition()

    def clear(self) -> None:
        """Drops what was not sent yet."""
        with self._changed:
            self._unacknowledged -= len(self._waiting)
            self._unacknowledged_rows -= self._waiting_rows
            self._take()

    def drain(self, timeout_s: float) -> None:
        """Closes, sends what is left and waits until everything is acknowledged, all within the timeout."""
        deadline = time.monotonic() + timeout_s
        self.close()
        with self._changed:
            self._is_draining = True
            self._arrived.notify()
        if self._thread:
            self._thread.join(timeout_s)
        with self._changed:
            left_s = max(0.0, deadline - time.monotonic())
            what = waits.ACKNOWLEDGEMENT(peer=self._client.peer)
            self._wait(lambda: not self._unacknowledged, left_s, what)

    def close(self) -> None:
        """Lets nobody wait any more; what is put from here on goes out without delay."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._arrived.notify()

    def _has_room(self) -> bool:
        return self._unacknowledged < self._backlog or self._is_closed

    def _wait(self, condition: Callable[[], bool], timeout_s: float | None, what: str) -> bool:
        with lifecycle.waiting(what):
            return self._changed.wait_for(condition, timeout_s)

    def _run(self) -> None:
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._waiting or self._is_draining)
                self._arrived.wait_for(lambda: self._waiting_rows >= FULL_ROWS or self._is_closed, self._delay_s)
                batches = self._take()
            if not batches and self._is_draining:
                return
            with contextlib.suppress(Closed):  # the run has ended
                self._send(batches)

    def _send(self, batches: list[Batch]) -> None:
        # Without the lock: a call may wait for room, which the acknowledgements that need the lock make.
        for run in _runs(batches):
            message = run[0] if len(run) == 1 else join_rows(run)
            future = self._client.call(self._method, message, meta=self._make_meta())
            done = functools.partial(self._finish, message=message, count=len(run))
            future.add_done_callback(done)

    def _take(self) -> list[Batch]:
        batches, self._waiting, self._waiting_rows = self._waiting, [], 0
        return batches

    def _finish(self, future: rpc.Future, message: Batch, count: int) -> None:
        with self._changed:  # nobody is to see rows that are counted as stored and as under way
            try:
                self._on_done(future, message)
            except Exception as error:
                lifecycle.fail(error)  # of our own; whoever waits for room must not wait for ever because of it
            self._unacknowledged -= count
            self._unacknowledged_rows -= len(message[ENV_ID])
            self._changed.notify_all()


def _runs(batches: list[Batch]) -> list[list[Batch]]:
    """Batches that can be joined: those of training and of evaluation apart, as long as they have the same columns.

    The order of the two does not matter: they are of other environments.
    """
    runs: list[list[Batch]] = []
    for of_eval in (False, True):
        columns = None
        for batch in [batch for batch in batches if batch[IS_EVAL][0] == of_eval]:
            own = [(key, value.dtype, value.shape[1:]) for key, value in batch.items()]
            if own != columns:
                columns = own
                runs.append([])
            runs[-1].append(batch)
    return runs
