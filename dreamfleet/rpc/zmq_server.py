"""The ZeroMQ engine of the server, over TCP: one thread reads requests, those that made the answers send them."""

from pathlib import Path

import zmq

from dreamfleet.rpc import address, codec, zmq_socket
from dreamfleet.rpc.keys import load_key
from dreamfleet.rpc.messages import Answer
from dreamfleet.rpc.wire_server import ENGINE_LIMIT, SEND_QUEUE, WireServer
from dreamfleet.rpc.zmq_gatekeeper import Gatekeeper

_LINGER_MS = 500
_RECEIVE_QUEUE = 64  # requests of one client that wait to be read
_BURST = 64  # requests read before batches and answers get their turn


class ZmqServer(WireServer):
    """Serves on TCP, with CURVE encryption for peers that hold the key."""

    def __init__(self, addr: str, name: str, *, key_file: str | Path | None, max_message_bytes: int, max_pending: int):
        super().__init__(addr, name, max_message_bytes=max_message_bytes, max_pending=max_pending)
        self._endpoint = zmq_socket.make_endpoint(addr, is_server=True)
        self._key = load_key(key_file, addr)
        self._socket: zmq.Socket | None = None  # under the lock
        self._clients: set[bytes] = set()  # that have asked for something since the last `stats`

    def deliver(self, answers: list[Answer]) -> None:
        messages = [[request.origin[0], *self._encode(request, answer)] for request, answer in answers]
        with self._lock:
            if self._socket is None:
                return
            for message in messages:
                self._send(self._socket, message)
            must_read = zmq_socket.has_message(self._socket) or self._pending >= self._max_pending
            self._pending -= len(messages)
        if must_read:
            self.wake()

    def stats(self) -> dict[str, float]:
        clients, self._clients = self._clients, set()
        return super().stats() | {"clients": len(clients)}

    def _send(self, socket: zmq.Socket, message: list[codec.Buffer]) -> None:
        try:
            zmq_socket.send(socket, message)
            self._bytes_out += sum(map(len, message))
        except zmq.ZMQError as error:  # the client is gone, or has stopped to read its answers
            self._drop_reply(is_stuck=error.errno == zmq.EAGAIN)

    def _listen(self) -> None:
        self._context = zmq.Context()
        socket = self._make_socket()
        try:
            socket.bind(self._endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(0)
            raise address.cannot_listen(self.addr, error) from None
        self._socket = socket
        self._reader.start()

    def _make_socket(self) -> zmq.Socket:
        socket = zmq_socket.make_socket(self._context, zmq.ROUTER, self._endpoint)
        socket.router_mandatory = True
        socket.sndhwm, socket.rcvhwm = SEND_QUEUE, _RECEIVE_QUEUE
        socket.maxmsgsize = max(self._max_bytes, ENGINE_LIMIT)
        socket.curve_server = True
        socket.curve_secretkey = self._key.secret
        socket.zap_domain = b"dreamfleet"
        self._gatekeeper = Gatekeeper(self._context, socket, self._key, self._limited_log, self.name)
        return socket

    def _read_loop(self) -> None:
        socket = self._socket
        assert socket
        waiting = zmq_socket.make_poll(self._wakeup)
        reading = zmq_socket.make_poll(self._wakeup, socket)
        self._gatekeeper.start()
        while not self.is_closed:
            try:
                messages = self._receive(socket)
                for identity, *frames in messages:
                    self._clients.add(identity.bytes)
                    self._accept(identity.bytes, frames)
                self.flush()
            except zmq.ContextTerminated:
                return
            except Exception as error:
                self._limited_log.error(f"io/{type(error).__name__}", f"error in the I/O thread: {error!r}")
                continue
            if not messages:
                poll = reading if self._pending < self._max_pending else waiting
                zmq_socket.wait(poll, self._wakeup, self.next_deadline())
        self._all_answered.wait()
        with self._lock:
            self._socket = None
        socket.close(_LINGER_MS)
        self._context.term()
        self._gatekeeper.join()

    def _receive(self, socket: zmq.Socket) -> list[list[zmq.Frame]]:
        messages = []
        with self._lock:
            room = min(_BURST, self._max_pending - self._pending)
            while len(messages) < room and zmq_socket.has_message(socket):
                messages.append(zmq_socket.receive(socket))
            self._pending += len(messages)
        return messages
