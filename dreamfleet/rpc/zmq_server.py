"""The ZeroMQ engine of the server: one thread owns the socket, reads requests and sends answers."""

import collections
import math
import threading
import time
from pathlib import Path
from typing import Any

import zmq
from zmq.utils import z85

from dreamfleet.errors import BadRequest, ConfigError
from dreamfleet.rpc import address, codec, wire, zmq_socket
from dreamfleet.rpc.keys import load_key
from dreamfleet.rpc.messages import Answer, Request
from dreamfleet.rpc.server import Server
from dreamfleet.rpc.wakeup import Wakeup
from dreamfleet.rpc.zmq_socket import POLLIN

_LINGER_MS = 500
_SEND_QUEUE = 4096  # answers that wait for one client to read them
_RECEIVE_QUEUE = 64  # requests of one client that wait to be read
_BURST = 64  # requests read before answers get their turn
_ENGINE_LIMIT = codec.MAX_BYTES + (1 << 20)  # larger frames end the connection; smaller ones get an answer


class ZmqServer(Server):
    """Serves on `ipc:` sockets, and on TCP with CURVE encryption for peers that hold the key."""

    def __init__(self, addr: str, name: str, *, key_file: str | Path | None, max_message_bytes: int, max_pending: int):
        super().__init__(addr, name, max_pending)
        self._max_bytes = max_message_bytes
        self._endpoint = zmq_socket.make_endpoint(addr, is_server=True)
        self._key = None if address.is_ipc(addr) else load_key(key_file, addr)
        self._outbox: collections.deque[tuple[bytes, list[codec.Buffer]]] = collections.deque()
        self._wakeup = Wakeup()
        self._io_thread = threading.Thread(target=self._loop, name=f"{name}-rpc-io", daemon=True)
        self._is_hung_up = False
        self._pending = 0  # requests read and not answered; only the I/O thread changes it
        self._clients: set[bytes] = set()

    def open_request(self, request: Request) -> tuple[Any, dict[str, Any]]:
        frames, start = request.payload
        return wire.decode_payload(frames, self._max_bytes, start)

    def deliver(self, answers: list[Answer]) -> None:
        for request, answer in answers:
            self._outbox.append((request.origin[0], self._encode(request, answer)))
        self._wakeup.set()

    def stats(self) -> dict[str, float]:
        clients, self._clients = self._clients, set()
        return super().stats() | {"pending": self._pending, "clients": len(clients)}

    def _encode(self, request: Request, answer: Any) -> list[codec.Buffer]:
        number = request.origin[1]
        try:
            frames = wire.encode_answer(number, answer)
            if (size := sum(map(len, frames))) > self._max_bytes:
                raise ValueError(f"the reply has {size} bytes, above the limit of {self._max_bytes}")
        except (TypeError, ValueError) as error:
            return wire.encode_answer(number, self.make_failure(request, error))
        return frames

    def _listen(self) -> None:
        if address.is_ipc(self.addr):
            address.remove_stale_socket(self.addr)
        self._context = zmq.Context()
        self._zap = self._make_zap() if self._key else None
        self._socket = self._make_socket()
        self._monitor = zmq_socket.make_monitor(self._context, self._socket, zmq_socket.HANDSHAKE_FAILED)
        try:
            self._socket.bind(self._endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(0)
            if error.errno == zmq.EADDRINUSE:
                raise address.in_use(self.addr) from None
            remedy = "use an address of this host"
            raise ConfigError("addr", self.addr, f"cannot be listened on ({error})", remedy) from None
        self._io_thread.start()

    def _hang_up(self) -> None:
        if self._io_thread.is_alive():
            self._is_hung_up = True
            self._wakeup.set()
            self._io_thread.join()
        self._wakeup.close()

    def _make_socket(self) -> zmq.Socket:
        socket = zmq_socket.make_socket(self._context, zmq.ROUTER)
        socket.router_mandatory = True
        socket.sndhwm, socket.rcvhwm = _SEND_QUEUE, _RECEIVE_QUEUE
        socket.maxmsgsize = max(self._max_bytes, _ENGINE_LIMIT)
        if self._key:
            socket.curve_server = True
            socket.curve_secretkey = self._key.secret
            socket.zap_domain = b"dreamfleet"
        return socket

    def _make_zap(self) -> zmq.Socket:
        zap = self._context.socket(zmq.REP)
        zap.linger = 0
        zap.bind("inproc://zeromq.zap.01")
        return zap

    def _loop(self) -> None:
        listening = [(self._wakeup.fd, POLLIN), (self._monitor, POLLIN)]
        if self._zap:
            listening.append((self._zap, POLLIN))
        reading = [*listening, (self._socket, POLLIN)]
        while not self._is_hung_up:
            can_read = self._pending < self._max_pending and not self.is_closed
            try:
                ready = dict(zmq.zmq_poll(reading if can_read else listening, self._timeout_ms()))
                self._handle(ready)
            except Exception as error:
                self._limited_log.error(f"io/{type(error).__name__}", f"error in the I/O thread: {error!r}")
        self._send_answers()
        for socket in filter(None, (self._monitor, self._zap)):
            socket.close()
        self._socket.close(_LINGER_MS)
        self._context.term()

    def _handle(self, ready: dict[Any, int]) -> None:
        if self._wakeup.fd in ready:
            self._wakeup.clear()
        if self._outbox:
            self._send_answers()
        if self._socket in ready:
            self._read_requests()
        if self._zap in ready:
            self._authenticate()
        if self._monitor in ready:
            zmq_socket.read_event(self._monitor)
            self._limited_log.warning(
                "handshake", "refused a connection that does not speak our protocol or has no key"
            )
        self.flush()

    def _timeout_ms(self) -> int:
        deadline = self.next_deadline()
        return -1 if deadline == math.inf else max(0, math.ceil(1000 * (deadline - time.monotonic())))

    def _read_requests(self) -> None:
        for _ in range(min(_BURST, self._max_pending - self._pending)):
            identity, *frames = zmq_socket.receive(self._socket)
            self._bytes_in += sum(map(len, frames))
            self._pending += 1
            self._accept(identity.bytes, frames)
            if not zmq_socket.has_message(self._socket):
                return

    def _accept(self, identity: bytes, frames: list[Any]) -> None:
        self._clients.add(identity)
        request = Request("", (identity, 0), None)
        try:
            version, kind, number, method, start = wire.read_envelope(memoryview(frames[0] if frames else b""))
            request.method, request.origin, request.payload = method, (identity, number), (frames, start)
            if version != wire.VERSION or kind != wire.REQUEST:
                raise BadRequest(f"protocol {version} is not the protocol {wire.VERSION} of this server")
        except BadRequest as error:
            self.deliver([(request, self.make_failure(request, error))])
        else:
            self.dispatch(request)

    def _send_answers(self) -> None:
        while self._outbox:
            identity, frames = self._outbox.popleft()
            self._pending -= 1
            try:
                zmq_socket.send(self._socket, [identity, *frames])
                self._bytes_out += sum(map(len, frames))
            except zmq.ZMQError as error:  # the client is gone, or has stopped reading its answers
                self._counters.add("dropped_replies")
                if error.errno == zmq.EAGAIN:
                    self._limited_log.warning("send", "dropped a reply to a client that does not read")

    def _authenticate(self) -> None:
        assert self._zap and self._key
        version, number, _, peer, _, mechanism, *credentials = self._zap.recv_multipart()
        is_ours = mechanism == b"CURVE" and z85.encode(credentials[0]) == self._key.public
        if not is_ours:
            self._limited_log.warning("key", f"refused a peer without the key of this run ({peer.decode()})")
        status = (b"200", b"OK") if is_ours else (b"400", b"unknown key")
        self._zap.send_multipart([version, number, *status, b"", b""])
