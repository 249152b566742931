"""The ZeroMQ engine of a client."""

import collections
import math
import threading
import time
from pathlib import Path

import zmq

from dreamfleet.base.addresses import Address
from dreamfleet.base.hosts import is_ipv6_only
from dreamfleet.errors import BadRequest
from dreamfleet.rpc import codec, wire
from dreamfleet.rpc.addresses import connect_host
from dreamfleet.rpc.calls import Calls, Future
from dreamfleet.rpc.io_thread import Wakeup, start_io_thread
from dreamfleet.rpc.keys import KeyPair, load_key
from dreamfleet.rpc.zmq import sockets

_RECONNECT_MS, _RECONNECT_MAX_MS = 20, 500
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | sockets.HANDSHAKE_FAILED


class ZmqClientEngine:
    """Sends calls on the threads of the callers, and reads answers in a thread of its own."""

    def __init__(self, addr: Address, calls: Calls, *, protocol: int, key_file: str | Path | None):
        self.encoder = wire.RequestEncoder(protocol)
        self._calls = calls
        endpoint = sockets.make_endpoint(addr, is_server=False)
        key = load_key(key_file, addr.text)
        self._context = zmq.Context()
        self._socket = _make_socket(self._context, key, is_ipv6=is_ipv6_only(connect_host(addr.host)))
        self._monitor = sockets.make_monitor(self._context, self._socket, _EVENTS)
        self._wakeup = Wakeup()
        self._poll = sockets.make_poll(self._wakeup, self._socket, self._monitor)
        # The lock guards the socket and the calls that wait to be sent.
        self._socket_lock = threading.Lock()
        self._outbox: collections.deque[Future] = collections.deque()
        self._greeting: list[codec.Buffer] | None = None  # to be sent before anything else
        self._is_linked = False  # whether there is a connection, on which calls may have to wait for a greeting
        self._socket.connect(endpoint)
        self._thread = start_io_thread(calls.name, calls.log, self._is_over, self._step, self._end)

    def submit(self, future: Future) -> None:
        with self._socket_lock:
            if self._calls.is_closed:
                return
            self._outbox.append(future)
            # A loss that is not known here yet may have been followed by a connection to somebody else.
            must_read = sockets.has_message(self._monitor)
            is_stuck = self._calls.connected and not must_read and not self._send_calls()
            must_read |= sockets.has_message(self._socket)
        if is_stuck or must_read:
            self._wakeup.set()

    def close(self) -> None:
        self._wakeup.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _is_over(self) -> bool:
        return self._calls.is_closed or self._context.closed

    def _step(self) -> None:
        if self._is_linked and time.monotonic() >= self._calls.greet_at:
            self._begin()
        if not self._turn():
            sockets.wait(self._poll, self._wakeup, self._calls.greet_at if self._is_linked else math.inf)

    def _end(self) -> None:
        with self._socket_lock:
            self._context.destroy(0)
        self._wakeup.close()

    def _turn(self) -> bool:
        """Handles what has happened; returns whether there may be more to do."""
        events, messages = [], []
        with self._socket_lock:
            # Not before a loss is known: what waits may be for nobody else.
            is_stuck = not sockets.has_message(self._monitor) and self._send_waiting()
            while sockets.has_message(self._monitor):
                events.append(sockets.read_event(self._monitor)[0])
            while sockets.has_message(self._socket):
                messages.append(sockets.receive(self._socket))
            can_send = is_stuck and sockets.has_room(self._socket)
        for pieces in messages:  # before the events: answers that came before the connection was lost count
            self._read_answer(sockets.join(pieces))
        for event in events:
            self._handle_event(event)
        return bool(events or messages or can_send)

    def _read_answer(self, frames: list[codec.Buffer]) -> None:
        self._calls.counters.bytes_in += sum(map(len, frames))
        number, outcome = wire.read_answer(frames)
        if isinstance(outcome, BadRequest):
            self._calls.warn_unreadable(outcome)
        self._calls.finish(number, outcome)

    def _handle_event(self, event: int) -> None:
        calls = self._calls
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._is_linked = True
            self._begin()
        elif event == zmq.EVENT_DISCONNECTED and self._is_linked:
            self._is_linked, self._greeting = False, None
            if not calls.connected:
                return
            with self._socket_lock:  # a call that goes out right now is either lost, or not sent yet
                again, lost = calls.note_lost()
                self._outbox.extendleft(reversed(again))
            calls.fail_lost(lost)
        elif event & sockets.HANDSHAKE_FAILED:
            calls.log.warning(
                "handshake", f"{calls.peer} refused the connection: are the key file and the transport the same?"
            )

    def _begin(self) -> None:
        greeting = self._calls.begin(self.encoder, self._open)
        with self._socket_lock:
            self._greeting = greeting

    def _open(self) -> None:
        with self._socket_lock:
            self._calls.note_connected()

    def _send_waiting(self) -> bool:
        """Sends what may be sent; returns whether something has to wait for room."""
        if self._greeting is not None:
            try:
                sockets.send(self._socket, self._greeting)
            except zmq.Again:
                return True
            self._greeting = None
        return self._calls.connected and not self._send_calls()

    def _send_calls(self) -> bool:
        """Sends the calls that wait; returns whether all could be sent."""
        while self._outbox:
            future = self._outbox[0]
            frames = future.payload
            if frames is not None:  # else the call was given up meanwhile
                try:
                    sockets.send(self._socket, frames)
                except zmq.Again:
                    return False
                future.is_sent = True
                self._calls.counters.bytes_out += sum(map(len, frames))
            self._outbox.popleft()
        return True


def _make_socket(context: zmq.Context, key: KeyPair, *, is_ipv6: bool) -> zmq.Socket:
    socket = sockets.make_socket(context, zmq.DEALER, is_ipv6=is_ipv6)
    socket.immediate = True  # nothing is queued for a server that is not there: the outbox is ours
    socket.reconnect_ivl, socket.reconnect_ivl_max = _RECONNECT_MS, _RECONNECT_MAX_MS
    socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = key.public, key.public, key.secret
    return socket
