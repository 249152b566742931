"""The ZeroMQ engine of the client, over TCP."""

import collections
import math
import threading
from pathlib import Path

import zmq

from dreamfleet.rpc import zmq_socket
from dreamfleet.rpc.future import Future
from dreamfleet.rpc.keys import load_key
from dreamfleet.rpc.wakeup import Wakeup
from dreamfleet.rpc.wire_client import WireClient

_RECONNECT_MS, _RECONNECT_MAX_MS = 20, 500
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq_socket.HANDSHAKE_FAILED


class ZmqClient(WireClient):
    """Sends calls on the threads of the callers, and reads answers in a thread of its own."""

    def __init__(self, addr: str, name: str, *, peer: str, key_file: str | Path | None, max_inflight: int):
        super().__init__(name, peer, max_inflight)
        endpoint = zmq_socket.make_endpoint(addr, is_server=False)
        key = load_key(key_file, addr)
        self._context = zmq.Context()
        self._socket = zmq_socket.make_socket(self._context, zmq.DEALER, endpoint)
        self._socket.immediate = True  # nothing is queued for a server that is not there: the outbox is ours
        self._socket.reconnect_ivl, self._socket.reconnect_ivl_max = _RECONNECT_MS, _RECONNECT_MAX_MS
        self._socket.curve_serverkey, self._socket.curve_publickey = key.public, key.public
        self._socket.curve_secretkey = key.secret
        self._monitor = zmq_socket.make_monitor(self._context, self._socket, _EVENTS)
        self._wakeup = Wakeup()
        self._poll = zmq_socket.make_poll(self._wakeup, self._socket, self._monitor)
        # The lock guards the socket and the calls that wait to be sent.
        self._socket_lock = threading.Lock()
        self._outbox: collections.deque[Future] = collections.deque()
        self._socket.connect(endpoint)
        self._thread = threading.Thread(target=self._read_loop, name=f"{self.name}-rpc-io", daemon=True)
        self._thread.start()

    def _submit(self, future: Future) -> None:
        with self._socket_lock:
            if self._is_closed:
                return
            self._outbox.append(future)
            is_stuck = self.connected and not self._send_calls()
            must_read = zmq_socket.has_message(self._socket)
        if is_stuck or must_read:
            self._wakeup.set()

    def _hang_up(self) -> None:
        self._wakeup.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _read_loop(self) -> None:
        while not self._is_closed:
            try:
                if not self._turn():
                    zmq_socket.wait(self._poll, self._wakeup, math.inf)
            except zmq.ContextTerminated:
                return
            except Exception as error:
                self._limited_log.error(f"io/{type(error).__name__}", f"error in the I/O thread: {error!r}")
        self._destroy()

    def _destroy(self) -> None:
        with self._socket_lock:
            self._context.destroy(0)
        self._wakeup.close()

    def _turn(self) -> bool:
        """Handles what has happened; returns whether there may be more to do."""
        events, messages = [], []
        with self._socket_lock:
            is_stuck = self.connected and not self._send_calls()
            while zmq_socket.has_message(self._monitor):
                events.append(zmq_socket.read_event(self._monitor)[0])
            while zmq_socket.has_message(self._socket):
                messages.append(zmq_socket.receive(self._socket))
            can_send = is_stuck and zmq_socket.has_room(self._socket)
        for frames in messages:  # before the events: answers that came before the connection was lost count
            self._read_answer(frames)
        for event in events:
            self._handle_event(event)
        return bool(events or messages or can_send)

    def _handle_event(self, event: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._note_connected()
        elif event == zmq.EVENT_DISCONNECTED and self.connected:
            with self._socket_lock:  # a call that goes out right now is either lost, or not sent yet
                again, lost = self._note_lost()
                self._outbox.extendleft(reversed(again))
            self._fail_lost(lost)
        elif event & zmq_socket.HANDSHAKE_FAILED:
            self._limited_log.warning("handshake", f"{self.peer} refused the connection: is the key file the same?")

    def _send_calls(self) -> bool:
        """Sends the calls that wait; returns whether all could be sent."""
        while self._outbox:
            future = self._outbox[0]
            frames = future.payload
            if frames is not None:  # else the call was given up meanwhile
                try:
                    zmq_socket.send(self._socket, frames)
                except zmq.Again:
                    return False
                future.is_sent = True
                self._bytes_out += sum(map(len, frames))
            self._outbox.popleft()
        return True
