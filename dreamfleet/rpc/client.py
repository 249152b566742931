"""The client's side of the interface: calls in flight, their futures, deadlines and what a lost connection does to them.

An engine subclasses `Client`: it sends what `_submit` gives it and reports with `_finish`, `_on_connect`, `_on_disconnect`.
"""

import abc
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from dreamfleet import lifecycle
from dreamfleet.errors import BadRequest, Closed, DeadlineExceeded, Disconnected
from dreamfleet.rpc.counters import Counters
from dreamfleet.rpc.messages import Failure, Reply

_log = logging.getLogger("dreamfleet.rpc")


class Future:
    """The answer to a call; arrays that were sent may be changed again once it is done."""

    __slots__ = ("_callbacks", "_client", "_error", "_gate", "_is_done", "_reply", "deadline", "is_sent",
                 "method", "number", "payload", "repeat", "started")  # fmt: skip

    def __init__(self, client: "Client", method: str, payload: Any, repeat: bool, deadline: float | None):
        self.method, self.payload, self.repeat, self.deadline = method, payload, repeat, deadline
        self.number = -1
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
        """Metadata of the reply, once there is one."""
        return self._reply.meta if self._reply else {}

    def done(self) -> bool:
        """Whether `result` returns or raises at once."""
        if not self._is_done:
            self._client._advance()
        return self._is_done

    def result(self, timeout_s: float | None = None) -> Any:
        """The data of the reply; raises what went wrong, or `DeadlineExceeded` after `timeout_s`."""
        if not self._is_done:
            self._client._wait(self, timeout_s)
        if self._error:
            raise self._error
        assert self._reply
        return self._reply.data

    def add_done_callback(self, fn: Callable[["Future"], None]) -> None:
        """Calls `fn(future)` when done, in the I/O thread, or at once if it already is; it must not block."""
        with self._client._lock:
            if not self._is_done:
                self._callbacks.append(fn)
                return
        fn(self)

    def wait(self, timeout_s: float) -> bool:
        """Blocks until another thread has set the answer; a negative timeout means for ever."""
        if self._gate.acquire(timeout=timeout_s):
            self._gate.release()
        return self._is_done

    def set(self, reply: Reply | None, error: Exception | None) -> None:
        """Called by the client, once."""
        with self._client._lock:
            self._reply, self._error, self._is_done = reply, error, True
            self.payload = None
        self._gate.release()
        for fn in self._callbacks:
            try:
                fn(self)
            except Exception:
                _log.exception("a callback of %s failed", self.method)


class Client(abc.ABC):
    """Calls the methods of one server, and connects again by itself when the connection is lost."""

    def __init__(self, name: str, peer: str, max_inflight: int):
        self.name = name
        self.peer = peer
        self.connected = False
        self.connections = 0
        self._max_inflight = max_inflight
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._inflight: dict[int, Future] = {}  # in the order in which the calls were made
        self._numbers = itertools.count()
        self._counters = Counters()
        self._is_closed = False

    def call(
        self, method: str, data: Any = None, *, meta: dict | None = None, repeat: bool = False,
        deadline_s: float | None = None,
    ) -> Future:  # fmt: skip
        """Calls `method` on the server; blocks only while `max_inflight` calls are unanswered.

        A call with `repeat` is sent again after a lost connection; the future of any other one raises `Disconnected`.
        """
        deadline = None if deadline_s is None else time.monotonic() + deadline_s
        future = Future(self, method, self._encode(method, data, meta), repeat, deadline)
        self._enter(future)
        self._submit(future)
        return future
