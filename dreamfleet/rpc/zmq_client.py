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
        flags = zmq.POLLIN | zmq.POLLOUT if self._is_stuck else zmq.POLLIN
        polled = [(self._socket, flags), (self._monitor, zmq.POLLIN), (self._wakeup.fd, zmq.POLLIN)]
        for source, _ in zmq.zmq_poll(polled, timeout_ms):
            if source is self._socket:
                self._read_answers()
            elif source is self._monitor:
                self._read_events()
            else:
                self._wakeup.clear()
        if self._outbox and self.connected:
            self._send_calls()

    def _read_answers(self) -> None:
        while True:
            try:
                frames = zmq_socket.receive(self._socket)
            except zmq.Again:
                return
            self._counters.add("bytes_in", sum(map(len, frames)))
            try:
                _, kind, number, _, start = wire.read_envelope(memoryview(frames[0]))
            except BadRequest as error:
                self._limited_log.warning("answer", f"{self.peer} sent an answer that cannot be read: {error}")
                continue
            try:
                self._finish(number, wire.decode_answer(kind, frames, _MAX_REPLY_BYTES, start))
            except BadRequest as error:
                self._finish(number, error)

    def _read_events(self) -> None:
        while True:
            try:
                event = zmq_socket.read_event(self._monitor)
            except zmq.Again:
                return
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
            future = self._outbox[0]
            frames = future.payload
            if frames is not None:  # else it was given up meanwhile
                try:
                    zmq_socket.send(self._socket, frames)
                except zmq.Again:
                    self._is_stuck = True
                    return
                future.is_sent = True
                self._counters.add("bytes_out", sum(map(len, frames)))
            self._outbox.popleft()


class InlineZmqClient(ZmqClient):
    """For one thread with one call in flight at a time: no other thread is involved in a call."""

    def _start(self) -> None:
        self._step_lock = threading.Lock()  # `close` may come from another thread

    def advance(self) -> None:
        self._block(lambda: False, time.monotonic())

    def _submit(self, future: Future) -> None:
        self._outbox.append(future)
        self.advance()

    def _await(self, future: Future, until: float | None) -> bool:
        self._block(lambda: future.payload is None, until)
        return future.payload is None

    def _block(self, is_ready: Callable[[], bool], until: float | None) -> None:
        with self._step_lock:
            while not is_ready() and not self._is_closed:
                self._step(until)
                if until is not None and time.monotonic() >= until:
                    return

    def _hang_up(self) -> None:
        self._wakeup.set()
        with self._step_lock:
            self._destroy()
