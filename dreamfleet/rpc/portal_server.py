"""The portal engine of the server: `portal.Server` moves the data, our methods and batches do the work."""

import concurrent.futures
import contextlib
import errno
import logging
import math
import queue
import threading
import time
from pathlib import Path
from typing import Any

from dreamfleet.errors import BadRequest, ConfigError
from dreamfleet.rpc import address, codec, portal_data, portal_guard
from dreamfleet.rpc.keys import load_key
from dreamfleet.rpc.messages import Answer, Failure, Reply, Request
from dreamfleet.rpc.portal_guard import portal
from dreamfleet.rpc.server import Server

_log = logging.getLogger("dreamfleet.rpc")
_CLOSE_S = 1.0
_UNLIMITED = 1 << 30
_UNKNOWN_METHOD, _HANDLER_ERROR = 3, 4  # the library's status of an answer
_ENGINE_LIMIT = codec.MAX_BYTES + (1 << 20)  # larger messages end the connection; smaller ones get an answer


class PortalServer(Server):
    """Serves plain portal clients as well as ours, on loopback unless told otherwise."""

    def __init__(self, addr: str, name: str, *, key_file: str | Path | None, max_message_bytes: int, max_pending: int):
        super().__init__(addr, name, max_pending)
        host, self._port = address.split_host(addr)
        self._host = address.bind_host(host)
        self._handshake = portal_guard.HANDSHAKE
        if not address.is_loopback(self._host):
            self._handshake = load_key(key_file, addr).token()
            _log.warning("%s listens on %s with the portal engine, which does not encrypt", name, addr)
        self._max_bytes = max_message_bytes
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._driver = threading.Thread(target=self._drive, name=f"{name}-rpc-io", daemon=True)
        self._server: _Server | None = None

    def submit(self, method: str, args: tuple[Any, ...]) -> concurrent.futures.Future:
        """Takes a call from the library; the future is its answer."""
        job = concurrent.futures.Future()
        data, meta = portal_data.split_meta(args[0] if args else None)
        request = Request(method, (job, meta is not None), (data, meta or {}))
        if len(args) > 1:
            self.deliver([(request, self.make_failure(request, BadRequest("a call has at most one argument")))])
        elif self.is_closed:
            job.set_exception(_CallFailed("the server is closed"))
        else:
            self._inbox.put(request)
        return job

    def open_request(self, request: Request) -> tuple[Any, dict[str, Any]]:
        data, meta = request.payload
        return portal_data.restore(data), portal_data.restore(meta)

    def deliver(self, answers: list[Answer]) -> None:
        for request, answer in answers:
            job, has_meta = request.origin
            try:
                if not isinstance(answer, Failure):
                    job.set_result(self._prepare(answer, has_meta))
                    continue
            except TypeError as error:
                answer = self.make_failure(request, error)
            except concurrent.futures.InvalidStateError:
                continue  # given up when the server was closed
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                job.set_exception(_CallFailed(portal_data.failure_to_text(answer)))

    def wake(self) -> None:
        self._inbox.put(None)

    def stats(self) -> dict[str, float]:
        server = self._server
        stats = super().stats()
        if server:
            stats |= {"pending": len(server.jobs), "clients": len(server.connections)}
        return stats

    def refuse(self, method: str, reason: str) -> str:
        """The text of the answer to a request that did not get as far as `submit`."""
        return portal_data.failure_to_text(self.make_failure(Request(method, None, None), BadRequest(reason)))

    def count_bytes(self, bytes_in: int, bytes_out: int) -> None:
        self._bytes_in += bytes_in
        self._bytes_out += bytes_out

    @staticmethod
    def _prepare(answer: Any, has_meta: bool) -> Any:
        data, meta = (answer.data, answer.meta) if isinstance(answer, Reply) else (answer, {})
        return portal_data.prepare(portal_data.join_meta(data, meta) if has_meta else data)

    def _listen(self) -> None:
        portal_guard.adopt_thread()
        try:
            self._server = _Server(self, self._host, self._port, self._handshake, self._max_bytes)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise address.in_use(self.addr) from None
            reason = f"cannot be listened on ({error.strerror})"
            raise ConfigError("addr", self.addr, reason, "use an address of this host") from None
        for method in self._methods:
            self._server.bind(method, method, workers=max(1, self._max_pending - 1))
            self._server.methods[method].pool = self._server
        self._server.start(block=False)
        self._driver.start()

    def _drive(self) -> None:
        while not self.is_closed:
            wait_s = self.next_deadline() - time.monotonic()
            try:
                request = self._inbox.get(timeout=None if wait_s == math.inf else max(0.0, wait_s))
            except queue.Empty:
                request = None
            try:
                if request:
                    self.dispatch(request)
                self.flush()
            except Exception as error:
                self._limited_log.error(f"io/{type(error).__name__}", f"error in the I/O thread: {error!r}")

    def _hang_up(self) -> None:
        if self._server:
            self.wake()
            self._join([self._driver])
            self._server.end()


class _CallFailed(Exception):
    """Carries the text of an error answer through the library."""


class _Server(portal.Server):
    """A `portal.Server` that hands its calls to our methods, in the place of its thread pools."""

    def __init__(self, owner: PortalServer, host: str, port: int, handshake: str, max_bytes: int):
        super().__init__(
            *(port, owner.name),
            errors=False,
            host=host,
            handshake=handshake,
            max_msg_size=max(max_bytes, _ENGINE_LIMIT),
            max_recv_queue=_UNLIMITED,
            max_send_queue=_UNLIMITED,
            logging=False,
        )
        self._owner = owner
        portal_guard.guard(self.socket, max_bytes, self._refuse, owner.count_bytes)

    def submit(self, method: str, *args: Any) -> concurrent.futures.Future:
        return self._owner.submit(method, args)

    def end(self) -> None:
        """Closes within a bounded time, unlike `close`."""
        self.socket.shutdown()
        self.running = False
        for job in list(self.jobs):
            if not job.done():
                job.set_exception(_CallFailed("the server was closed"))
        self.loop.join(_CLOSE_S)
        self.loop.kill()
        for pool in self.pools:
            pool.close()
        self.socket.close(_CLOSE_S)

    def _refuse(self, addr: Any, number: bytes, method: str, reason: str) -> None:
        self._send_error(addr, number, 2, self._owner.refuse(method, reason))

    def _error(self, addr: Any, reqnum: bytes, status: int, message: str) -> None:
        if status == _UNKNOWN_METHOD:
            message = self._owner.refuse(message.removeprefix("Unknown method "), str(self._owner.unknown_method()))
        elif status != _HANDLER_ERROR:  # the text of a handler's error is already made
            message = self._owner.refuse("", message)
        self._send_error(addr, reqnum, status, message)

    def _send_error(self, addr: Any, number: bytes, status: int, text: str) -> None:
        self.socket.send(addr, number, status.to_bytes(8, "little"), text.encode())
