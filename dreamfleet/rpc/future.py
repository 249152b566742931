"""The answer to a call that is on its way."""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dreamfleet.rpc.messages import Reply

if TYPE_CHECKING:
    from dreamfleet.rpc.client import Client

_log = logging.getLogger("dreamfleet.rpc")


class Future:
    """Gives the reply or raises what went wrong; arrays that were sent may be changed again once it is done."""

    __slots__ = (
        *("_callbacks", "_client", "_error", "_gate", "_is_done", "_reply"),
        *("deadline", "is_sent", "method", "number", "payload", "repeat", "started"),
    )

    def __init__(self, client: "Client", number: int, method: str, payload: Any, repeat: bool, deadline: float):
        self.number = number
        self.method, self.repeat, self.deadline = method, repeat, deadline
        self.payload: Any = payload  # what the engine sends; None once the call is done
        self.is_sent = False
        self.started = time.monotonic()
        self._client = client
        self._gate = threading.Lock()  # held until done
        self._gate.acquire()
        self._is_done = False
        self._reply: Reply | None = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Future], None]] = []

    @property
    def meta(self) -> dict[str, Any]:
        """Metadata of the reply, once it is there."""
        return self._reply.meta if self._reply else {}

    def done(self) -> bool:
        """Whether `result` will not block."""
        if not self._is_done:
            self._client.advance()
        return self._is_done

    def result(self, timeout_s: float | None = None) -> Any:
        """The data of the reply; raises the error of the call, or `DeadlineExceeded` after `timeout_s`."""
        if not self._is_done:
            self._client.wait_for(self, timeout_s)
        if self._error:
            raise self._error
        assert self._reply
        return self._reply.data

    def add_done_callback(self, fn: Callable[["Future"], None]) -> None:
        """Calls `fn(future)` in the I/O thread when done, or here if it already is; it must not block."""
        with self._client.lock:
            if not self._is_done:
                self._callbacks.append(fn)
                return
        fn(self)

    def settle(self, reply: Reply | None, error: Exception | None) -> None:
        """Makes the outcome known; for the client, once, under its lock."""
        self._reply, self._error = reply, error
        self.payload = None
        self._is_done = True
        self._gate.release()

    def run_callbacks(self) -> None:
        """For the client, after `settle` and without its lock."""
        for fn in self._callbacks:
            try:
                fn(self)
            except Exception:
                _log.exception("a callback of %s failed", self.method)

    def is_settled(self) -> bool:
        return self._is_done

    def wait(self, until: float) -> bool:
        """Blocks until another thread settles it, up to a monotonic time or infinity; returns whether it did."""
        if self._gate.acquire(timeout=-1 if until == math.inf else max(0.0, until - time.monotonic())):
            self._gate.release()
        return self._is_done
