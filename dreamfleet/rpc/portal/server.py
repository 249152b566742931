"""The portal engine of a server: `portal.Server` moves the data, our methods and batches do the work."""

import concurrent.futures
import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamfleet import lifecycle
from dreamfleet.base.addresses import Address, is_loopback
from dreamfleet.errors import BadRequest
from dreamfleet.rpc.addresses import cannot_listen, listen_host
from dreamfleet.rpc.io_thread import start_io_thread
from dreamfleet.rpc.keys import load_key
from dreamfleet.rpc.messages import Answer, Failure, Reply, Request, refuse_version
from dreamfleet.rpc.portal import data as portal_data
from dreamfleet.rpc.portal import guard
from dreamfleet.rpc.portal.guard import portal
from dreamfleet.rpc.wire import ENGINE_LIMIT

if TYPE_CHECKING:
    from dreamfleet.rpc.server import Server

_log = logging.getLogger("dreamfleet.rpc")
_CLOSE_S = 1.0
_UNLIMITED = 1 << 30
_UNKNOWN_METHOD, _HANDLER_ERROR = 3, 4  # the library's status of an answer
_DROPPED = "[dropped]"  # in place of the text of an error: the connection ends without an answer


class PortalServerEngine:
    """Serves plain portal clients as well as ours, on loopback unless told otherwise."""

    def __init__(
        self,
        server: "Server",
        addr: Address,
        *,
        protocol: int,
        key_file: str | Path | None,
        plain_handshake: bool,
        max_message_bytes: int,
        max_pending: int,
        max_connections: int,
    ):
        self._server, self._addr, self._protocol = server, addr, protocol
        self._max_bytes, self._max_pending, self._max_connections = max_message_bytes, max_pending, max_connections
        self._host = listen_host(addr.host)
        self._handshake = guard.HANDSHAKE
        if not is_loopback(self._host):
            what = "does not encrypt"
            if plain_handshake:
                what += " and, with run.portal_plain_handshake, lets in everybody who can reach it"
            else:
                self._handshake = load_key(key_file, addr.text).token()
            _log.warning("%s listens on %s with the portal engine, which %s", server.name, addr.text, what)
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._portal: _PortalServer | None = None

    def listen(self) -> None:
        guard.adopt_thread()
        options = {"host": self._host, "ipv6": ":" in self._host, "handshake": self._handshake}
        limits = (self._max_bytes, self._max_connections)
        try:
            self._portal = _PortalServer(self, self._server.name, self._addr.port, *limits, **options)
        except OSError as error:
            raise cannot_listen(self._server.addr, error) from None
        self._portal.serve(self._server.method_names, workers=max(1, self._max_pending - 1))
        server = self._server
        self._thread = start_io_thread(server.name, server.log, lambda: server.is_closed, self._step, lambda: None)

    def submit(self, method: str, args: tuple[Any, ...], is_plain: bool) -> concurrent.futures.Future:
        """Takes a call from the library; the future is its answer."""
        job = concurrent.futures.Future()
        data, meta = portal_data.split_meta(args[0] if args else None)
        request = Request(method, (job, meta is not None, is_plain), (data, meta or {}))
        try:
            self._check(args, request.payload[1])
        except BadRequest as error:
            self.deliver([(request, self._server.make_failure(request, error))])
        else:
            if not self._server.is_closed:  # else `end` drops it
                self._inbox.put(request)
        return job

    def open(self, request: Request) -> tuple[Any, dict[str, Any]]:
        data, meta = request.payload
        return portal_data.restore(data), portal_data.restore(meta)

    def deliver(self, answers: list[Answer]) -> None:
        for request, answer in answers:
            job, has_meta, is_plain = request.origin
            try:
                if not isinstance(answer, Failure):
                    job.set_result(_prepare(answer, has_meta))
                    continue
            except TypeError as error:
                answer = self._server.make_failure(request, error)
            except concurrent.futures.InvalidStateError:
                continue  # given up when the server was closed
            # A plain client ends at any error, but connects again when it was cut off.
            is_dropped = is_plain and (answer.is_closing or answer.is_over)
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                job.set_exception(_CallFailed(_DROPPED if is_dropped else portal_data.failure_to_text(answer)))

    def wake(self) -> None:
        self._inbox.put(None)

    def stats(self) -> dict[str, float]:
        server = self._portal
        return {"pending": len(server.jobs), "clients": len(server.connections)} if server else {}

    def close(self) -> None:
        if self._portal and self._thread:
            self.wake()
            self._server.join([self._thread])
            self._portal.end()

    def refuse(self, method: str, reason: str) -> str:
        """The text of the answer to a request that did not get as far as `submit`."""
        request = Request(method, None, None)
        return portal_data.failure_to_text(self._server.make_failure(request, BadRequest(reason)))

    def refuse_unknown(self, method: str) -> str:
        return self.refuse(method, str(self._server.unknown_method()))

    def count_bytes(self, bytes_in: int, bytes_out: int) -> None:
        self._server.counters.bytes_in += bytes_in
        self._server.counters.bytes_out += bytes_out

    def _check(self, args: tuple[Any, ...], meta: dict[str, Any]) -> None:
        if len(args) > 1:
            raise BadRequest("a call has at most one argument")
        protocol = portal_data.take_protocol(meta)
        if protocol not in (None, self._protocol):
            raise refuse_version("protocol", protocol, self._server.name, self._protocol)

    def _step(self) -> None:
        wait_s = self._server.next_deadline() - time.monotonic()
        request = None
        with contextlib.suppress(queue.Empty):
            request = self._inbox.get(timeout=None if wait_s == math.inf else max(0.0, wait_s))
        if request:
            self._server.dispatch(request)
        self._server.flush()


def _prepare(answer: Any, has_meta: bool) -> Any:
    data, meta = (answer.data, answer.meta) if isinstance(answer, Reply) else (answer, {})
    return portal_data.prepare(portal_data.join_meta(data, meta) if has_meta else data)


class _CallFailed(Exception):
    """Carries the text of an error answer through the library."""


def _drop(job: concurrent.futures.Future) -> None:
    """Gives up a call that has no answer yet."""
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        job.set_exception(_CallFailed(_DROPPED))


class _PortalServer(portal.Server):
    """A `portal.Server` that hands its calls to our methods, in the place of its thread pools."""

    socket: guard.ServerSocket

    def __init__(
        self, engine: PortalServerEngine, name: str, port: int, max_bytes: int, max_connections: int, **options: Any
    ):
        super().__init__(
            *(port, name),
            errors=False,
            max_msg_size=max(max_bytes, ENGINE_LIMIT),
            max_recv_queue=_UNLIMITED,
            max_send_queue=_UNLIMITED,
            logging=False,
            **options,
        )
        self._engine = engine
        guard.guard(
            self.socket,
            max_bytes=max_bytes,
            max_connections=max_connections,
            on_refusal=self._refuse,
            on_bytes=engine.count_bytes,
        )

    def serve(self, methods: Iterable[str], workers: int) -> None:
        for method in methods:
            self.bind(method, method, workers=workers, addr=True)
            self.methods[method].pool = self
        self.start(block=False)

    def submit(self, method: str, addr: Any, *args: Any) -> concurrent.futures.Future:
        job = self._engine.submit(method, args, is_plain=not self.socket.is_own(addr))
        if not self.running:
            _drop(job)
        return job

    def _loop(self) -> None:
        try:
            super()._loop()
        except Exception as error:
            lifecycle.fail(error)  # the library would end the process without saying why

    def end(self) -> None:
        """Closes within a bounded time, unlike `close`."""
        self.socket.shutdown()
        self.running = False
        for job in list(self.jobs):
            _drop(job)
        self.loop.join(_CLOSE_S)
        self.loop.kill()
        for pool in self.pools:
            pool.close()
        self.socket.close(_CLOSE_S)

    def _refuse(self, addr: Any, number: bytes, method: str, reason: str) -> None:
        self._send_error(addr, number, 2, self._engine.refuse(method, reason))

    def _error(self, addr: Any, reqnum: bytes, status: int, message: str) -> None:
        if status == _HANDLER_ERROR and message.endswith(_DROPPED):
            if self.running:  # else all connections end, once the answers that were made have gone out
                self.socket.hang_up(addr)
            return
        if status == _UNKNOWN_METHOD:
            message = self._engine.refuse_unknown(message.removeprefix("Unknown method "))
        elif status != _HANDLER_ERROR:  # the text of a handler's error is already made
            message = self._engine.refuse("", message)
        self._send_error(addr, reqnum, status, message)

    def _send_error(self, addr: Any, number: bytes, status: int, text: str) -> None:
        self.socket.send(addr, number, status.to_bytes(8, "little"), text.encode())
