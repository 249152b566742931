"""The portal engine of a client: the library's socket, with our futures, deadlines and reconnects."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dreamfleet.base.addresses import Address
from dreamfleet.base.hosts import is_ipv6_only
from dreamfleet.errors import BadRequest, RpcError
from dreamfleet.rpc.addresses import connect_host
from dreamfleet.rpc.calls import Calls, Future
from dreamfleet.rpc.keys import load_key
from dreamfleet.rpc.messages import Reply
from dreamfleet.rpc.portal import data as portal_data
from dreamfleet.rpc.portal import guard

_CLOSE_S = 2.0
_REFUSED = (1, 2, 3, 5)  # status of answers to requests that the library itself does not accept


class PortalCall(NamedTuple):
    """A call before it is known who will get it."""

    number: int
    method: str
    data: Any
    meta: dict[str, Any]

    def pack(self, is_plain: bool) -> list[Any]:
        """The message; metadata goes along only if the server is one of ours."""
        number = self.number | guard.PLAIN_MARK if is_plain else self.number
        data = self.data if is_plain else portal_data.join_meta(self.data, self.meta)
        name = self.method.encode()
        head = [number.to_bytes(8, "little"), len(name).to_bytes(8, "little"), name]
        return head + guard.packlib.pack(() if data is None else (data,))


class PortalEncoder:
    """Checks calls; the version of the protocol travels with the metadata."""

    def __init__(self, protocol: int):
        self._protocol = protocol

    def encode(self, number: int, method: str, data: Any, meta: dict[str, Any] | None) -> PortalCall:
        whole = portal_data.prepare(portal_data.with_protocol(meta, self._protocol))
        return PortalCall(number, method, portal_data.prepare(data), whole)

    def prepare(self, method: str, data: Any, meta: dict[str, Any] | None) -> tuple[Callable[[int], PortalCall], Any]:
        return functools.partial(self.encode, method=method, data=data, meta=meta), data


class PortalClientEngine:
    """Calls plain portal servers as well as ours, and tells `calls` which of them it has found."""

    def __init__(
        self, addr: Address, calls: Calls, *, protocol: int, key_file: str | Path | None, plain_handshake: bool
    ):
        self.encoder = PortalEncoder(protocol)
        self._calls = calls
        self._calls.is_plain = None
        self._send_lock = threading.Lock()
        is_open = addr.is_loopback or plain_handshake
        handshake = guard.HANDSHAKE if is_open else load_key(key_file, addr.text).token()
        guard.adopt_thread()
        self._socket = guard.ClientSocket(
            f"{connect_host(addr.host)}:{addr.port}",
            calls.name,
            start=False,
            logging=False,
            handshake=handshake,
            ipv6=is_ipv6_only(connect_host(addr.host)),
        )
        self._socket.callbacks_recv.append(self._read)
        self._socket.callbacks_conn.append(self._on_connected)
        self._socket.callbacks_disc.append(self._on_lost)
        self._socket.start()

    def submit(self, future: Future) -> None:
        with self._send_lock:
            self._send(future)

    def close(self) -> None:
        self._socket.sendq.clear()
        if threading.current_thread() is self._socket.thread.thread:
            self._socket.running = False
        else:
            self._socket.close(_CLOSE_S)

    def _send(self, future: Future) -> None:
        call: PortalCall | None = future.payload
        if call is None or future.is_sent or not (self._calls.connected and self._socket.connected):
            return  # given up meanwhile, or sent when there is a connection
        message = call.pack(is_plain=bool(self._socket.is_plain))
        try:
            self._socket.send(*message, timeout=0)
        except TimeoutError:
            return
        future.is_sent = True
        self._calls.counters.bytes_out += sum(map(len, message))

    def _on_connected(self) -> None:
        self._calls.is_plain = self._socket.is_plain
        if self._socket.is_plain:
            self._open()  # it knows no greeting
            return
        greeting: PortalCall | None = self._calls.begin(self.encoder, self._open)
        if greeting is None:
            return
        with contextlib.suppress(TimeoutError, ConnectionError), self._send_lock:
            self._socket.send(*greeting.pack(is_plain=False), timeout=0)
        # The library has no timer of its own.
        again = threading.Timer(max(0.0, self._calls.greet_at - time.monotonic()), self._greet_again)
        again.daemon = True
        again.start()

    def _greet_again(self) -> None:
        calls = self._calls
        if self._socket.connected and not calls.is_decided() and time.monotonic() >= calls.greet_at:
            self._on_connected()

    def _open(self) -> None:
        with self._send_lock:
            self._calls.note_connected()
            for future in list(self._calls.inflight.values()):
                self._send(future)

    def _on_lost(self) -> None:
        with self._send_lock:
            self._socket.sendq.clear()  # what went in after the library noticed the loss would go to the next server
            _, lost = self._calls.note_lost()
        self._calls.fail_lost(lost)

    def _read(self, message: memoryview) -> None:
        self._calls.counters.bytes_in += len(message)
        if len(message) < 16:
            self._calls.warn_unreadable("it is too short")
            return
        number, status = (int.from_bytes(message[start : start + 8], "little") for start in (0, 8))
        if self._socket.is_plain:
            number &= ~guard.PLAIN_MARK
        future = self._calls.inflight.get(number)
        method = future.method if future else ""
        try:
            outcome = self._read_answer(method, status, message[16:])
        except BadRequest as error:
            outcome = error
        self._calls.finish(number, outcome)

    def _read_answer(self, method: str, status: int, body: memoryview) -> Reply | RpcError:
        if status:
            text = str(body, "utf-8", "replace")
            return portal_data.text_to_error(text, self._calls.peer, method, is_refusal=status in _REFUSED)
        data, meta = portal_data.split_meta(portal_data.restore(guard.read_tree(body)))
        return Reply(data, meta or {})
