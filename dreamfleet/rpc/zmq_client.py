"""The ZeroMQ engine of the client, with a thread for its socket or (`InlineZmqClient`) on the thread of the caller."""

import collections
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from dreamfleet.errors import BadRequest
from dreamfleet.rpc import address, codec, wire, zmq_socket
from dreamfleet.rpc.client import Client
from dreamfleet.rpc.future import Future
from dreamfleet.rpc.keys import load_key
from dreamfleet.rpc.wakeup import Wakeup
from dreamfleet.rpc.zmq_socket import POLLIN, POLLOUT

_RECONNECT_MS, _RECONNECT_MAX_MS = 20, 500
_MAX_REPLY_BYTES = 1 << 40  # the server limits its replies


class ZmqClient(Client):
    """Owns a DEALER socket; everything about it happens in `_step`, in one thread at a time."""

    def __init__(self, addr: str, name: str, *, peer: str, key_file: str | Path | None, max_inflight: int):
        super().__init__(name, peer, max_inflight)
        endpoint = zmq_socket.make_endpoint(addr, is_server=False)
        key = None if address.is_ipc(addr) else load_key(key_file, addr)
        self._context = zmq.Context()
        self._socket = zmq_socket.make_socket(self._context, zmq.DEALER)
        self._socket.immediate = True  # nothing is queued for a server that is not there: the outbox is ours
        self._socket.reconnect_ivl, self._socket.reconnect_ivl_max = _RECONNECT_MS, _RECONNECT_MAX_MS
        if key:
            self._socket.curve_serverkey, self._socket.curve_publickey = key.public, key.public
            self._socket.curve_secretkey = key.secret
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq_socket.HANDSHAKE_FAILED
        self._monitor = zmq_socket.make_monitor(self._context, self._socket, events)
        self._wakeup = Wakeup()
        self._polled = [(self._socket, POLLIN), (self._monitor, POLLIN), (self._wakeup.fd, POLLIN)]
        self._polled_stuck = [(self._socket, POLLIN | POLLOUT), *self._polled[1:]]
        self._outbox: collections.deque[Future] = collections.deque()
        self._is_stuck = False  # the socket took no more: wait until it does
        self._socket.connect(endpoint)
        self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name=f"{self.name}-rpc-io", daemon=True)
        self._thread.start()

    def _encode(self, number: int, method: str, data: Any, meta: dict[str, Any] | None) -> list[codec.Buffer]:
        frames = wire.encode_request(number, method, data, meta)
        if (size := sum(map(len, frames))) > codec.MAX_BYTES:
            raise BadRequest(f"a message of {size} bytes is above the limit of {codec.MAX_BYTES}")
        return frames

    def _submit(self, future: Future) -> None:
        self._outbox.append(future)
        self._wakeup.set()

    def _hang_up(self) -> None:
        self._wakeup.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _loop(self) -> None:
        while not self._is_closed:
            try:
                self._step(None)
            except Exception as error:
                self._limited_log.error(f"io/{type(error).__name__}", f"error in the I/O thread: {error!r}")
        self._destroy()

    def _destroy(self) -> None:
        self._context.destroy(0)
        self._wakeup.close()

    def _step(self, until: float | None) -> None:
        """Waits for an event, up to a time, and handles all that have happened."""
        timeout_ms = -1 if until is None else max(0, math.ceil(1000 * (until - time.monotonic())))
        for source, _ in zmq.zmq_poll(self._polled_stuck if self._is_stuck else self._polled, timeout_ms):
            if source is self._socket:
                self._read_answers()
            elif source is self._monitor:
                self._read_events()
            else:
                self._wakeup.clear()
        if self._outbox and self.connected:
            self._send_calls()

    def _read_answers(self) -> None:
        while zmq_socket.has_message(self._socket):
            self._read_answer()

    def _read_answer(self) -> None:
        frames = zmq_socket.receive(self._socket)
        self._bytes_in += sum(map(len, frames))
        number = -1
        try:
            _, kind, number, _, start = wire.read_envelope(memoryview(frames[0]))
            outcome = wire.decode_answer(kind, frames, _MAX_REPLY_BYTES, start)
        except BadRequest as error:
            outcome = error
            self._limited_log.warning("answer", f"{self.peer} sent an answer that cannot be read: {error}")
        self._finish(number, outcome)

    def _read_events(self) -> None:
        while zmq_socket.has_message(self._monitor):
            event = zmq_socket.read_event(self._monitor)
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._note_connected()
            elif event == zmq.EVENT_DISCONNECTED and self.connected:
                self._read_answers()  # those that came before the connection ended
                self._outbox.extendleft(reversed(self._note_lost()))
            elif event & zmq_socket.HANDSHAKE_FAILED:
                self._limited_log.warning("handshake", f"{self.peer} refused the connection: is the key file the same?")

    def _send_calls(self) -> None:
        self._is_stuck = False
        while self._outbox:
            try:
                self._send_call(self._outbox[0])
            except zmq.Again:
                self._is_stuck = True
                return
            self._outbox.popleft()

    def _send_call(self, future: Future) -> None:
        frames = future.payload
        if frames is not None:  # else the call was given up meanwhile
            zmq_socket.send(self._socket, frames)
            future.is_sent = True
            self._bytes_out += sum(map(len, frames))


class InlineZmqClient(ZmqClient):
    """For one thread with one call in flight at a time: no other thread is involved in a call."""

    def _start(self) -> None:
        self._step_lock = threading.Lock()  # `close` may come from another thread

    def advance(self) -> None:
        with self._step_lock:
            if not self._is_closed:
                self._step(0)

    def _submit(self, future: Future) -> None:
        self._outbox.append(future)
        with self._step_lock:
            if self._is_closed:
                return
            if zmq_socket.has_message(self._monitor):
                self._read_events()
            if self.connected:
                self._send_calls()

    def _await(self, future: Future, until: float | None) -> bool:
        return self._block(future.is_settled, until)

    def _block(self, is_ready: Callable[[], bool], until: float | None) -> bool:
        with self._step_lock:
            while not is_ready():
                if self._is_closed or (until is not None and time.monotonic() >= until):
                    return is_ready()
                self._step(until)
        return True

    def _hang_up(self) -> None:
        self._wakeup.set()
        with self._step_lock:
            self._destroy()
