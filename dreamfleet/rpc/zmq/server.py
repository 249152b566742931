"""The ZeroMQ engine of a server: one thread reads requests, those that made the answers send them."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from dreamfleet.base.addresses import Address
from dreamfleet.rpc import codec
from dreamfleet.rpc.addresses import cannot_listen
from dreamfleet.rpc.io_thread import ServerThread
from dreamfleet.rpc.keys import load_key
from dreamfleet.rpc.messages import Answer, Request, is_left
from dreamfleet.rpc.wire import SEND_QUEUE, ServerWire
from dreamfleet.rpc.zmq import sockets
from dreamfleet.rpc.zmq.gatekeeper import Gatekeeper

if TYPE_CHECKING:
    from dreamfleet.rpc.server import Server

_LINGER_MS = 500
_FAREWELL_S = 0.2  # libzmq drops what a client has not read yet when the connection ends
_RECEIVE_QUEUE = 64  # requests of one client that wait to be read
_BURST = 64  # requests read before batches and answers get their turn


class ZmqServerEngine:
    """Serves on TCP, with CURVE encryption for peers that hold the key."""

    def __init__(
        self,
        server: "Server",
        addr: Address,
        wire: ServerWire,
        *,
        key_file: str | Path | None,
        max_connections: int,
    ):
        self._server, self._wire, self._max_connections = server, wire, max_connections
        self._endpoint = sockets.make_endpoint(addr, is_server=True)
        self._key = load_key(key_file, addr.text)
        self._thread = ServerThread(server)
        self._socket: zmq.Socket | None = None  # under the lock
        self._delivered_at = 0.0  # the last answer, on the monotonic clock
        self._clients: set[bytes] = set()  # that have asked for something since the last `stats`

    def listen(self) -> None:
        self._context = zmq.Context()
        socket = self._make_socket()
        try:
            socket.bind(self._endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(0)
            raise cannot_listen(self._server.addr, error) from None
        self._socket = self._reading = socket
        self._poll_full = sockets.make_poll(self._thread.wakeup)
        self._poll = sockets.make_poll(self._thread.wakeup, socket)
        self._gatekeeper.start()
        self._thread.start(self._is_over, self._step, self._end)

    def open(self, request: Request) -> tuple[Any, dict[str, Any]]:
        return self._wire.open(request)

    def deliver(self, answers: list[Answer]) -> None:
        wire = self._wire
        kept = [(request, answer) for request, answer in answers if not is_left(answer)]
        messages = [[request.origin[0], *wire.encode(request, answer)] for request, answer in kept]
        with wire.lock:
            if self._socket is None:
                return
            for message in messages:
                self._send(self._socket, message)
            must_read = sockets.has_message(self._socket) or wire.pending >= wire.max_pending
            wire.pending -= len(answers)
            self._delivered_at = time.monotonic()
        if must_read:
            self.wake()

    def wake(self) -> None:
        self._thread.wakeup.set()

    def stats(self) -> dict[str, float]:
        clients, self._clients = self._clients, set()
        return {"pending": self._wire.pending, "clients": len(clients)}

    def close(self) -> None:
        self._thread.close()

    def _make_socket(self) -> zmq.Socket:
        socket = sockets.make_socket(self._context, zmq.ROUTER, is_ipv6=self._endpoint.startswith("tcp://["))
        socket.router_mandatory = True
        socket.sndhwm, socket.rcvhwm = SEND_QUEUE, _RECEIVE_QUEUE
        socket.curve_server = True
        socket.curve_secretkey = self._key.secret
        socket.zap_domain = b"dreamfleet"
        server = self._server
        self._gatekeeper = Gatekeeper(self._context, socket, self._key, server.log, server.name, self._max_connections)
        return socket

    def _send(self, socket: zmq.Socket, message: list[codec.Buffer]) -> None:
        try:
            sockets.send(socket, message)
            self._server.counters.bytes_out += sum(map(len, message))
        except zmq.ZMQError as error:  # the client is gone, or has stopped to read its answers
            self._wire.drop_reply(is_stuck=error.errno == zmq.EAGAIN)

    def _is_over(self) -> bool:
        return self._server.is_closed or self._context.closed

    def _step(self) -> None:
        messages = self._receive()
        for identity, *pieces in messages:
            self._clients.add(identity.bytes)
            self._wire.accept(identity.bytes, sockets.join(pieces, self._wire.max_bytes))
        self._server.flush()
        if not messages:
            poll = self._poll if self._wire.pending < self._wire.max_pending else self._poll_full
            sockets.wait(poll, self._thread.wakeup, self._server.next_deadline())

    def _end(self) -> None:
        self._thread.all_answered.wait()
        with self._wire.lock:
            self._socket = None
        time.sleep(max(0.0, self._delivered_at + _FAREWELL_S - time.monotonic()))
        self._reading.close(_LINGER_MS)
        self._context.term()
        self._gatekeeper.join()

    def _receive(self) -> list[list[zmq.Frame]]:
        messages = []
        with self._wire.lock:
            room = min(_BURST, self._wire.max_pending - self._wire.pending)
            while len(messages) < room and sockets.has_message(self._reading):
                messages.append(sockets.receive(self._reading))
            self._wire.pending += len(messages)
        return messages
