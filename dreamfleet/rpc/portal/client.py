"""The portal engine of a client: the library's socket, with our futures, deadlines and reconnects."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


class PortalEncoder:
    """Turns calls into messages of the library; the version of the protocol travels with the metadata, if any does."""

    def __init__(self, protocol: int, has_meta: bool):
        self._protocol, self._has_meta = protocol, has_meta

    def encode(self, number: int, method: str, data: Any, meta: dict[str, Any] | None) -> list[Any]:
        if self._has_meta:
            data = portal_data.join_meta(data, portal_data.with_protocol(meta, self._protocol))
        args = () if data is None else (portal_data.prepare(data),)
        name = method.encode()
        head = [number.to_bytes(8, "little"), len(name).to_bytes(8, "little"), name]
        return head + guard.packlib.pack(args)

    def prepare(self, method: str, data: Any, meta: dict[str, Any] | None) -> tuple[Callable[[int], list[Any]], Any]:
        return functools.partial(self.encode, method=method, data=data, meta=meta), data


class PortalClientEngine:
    """Calls plain portal servers as well as ours; with plain ones, metadata has to be off."""

    def __init__(self, addr: Address, calls: Calls, *, protocol: int, key_file: str | Path | None, has_meta: bool):
        self.encoder = PortalEncoder(protocol, has_meta)
        self._calls = calls
        self._send_lock = threading.Lock()
        handshake = guard.HANDSHAKE if addr.is_loopback else load_key(key_file, addr.text).token()
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
        payload = future.payload
        if payload is None or future.is_sent or not (self._calls.connected and self._socket.connected):
            return  # given up meanwhile, or sent when there is a connection
        try:
            self._socket.send(*payload, timeout=0)
        except TimeoutError:
            return
        future.is_sent = True
        self._calls.counters.bytes_out += sum(map(len, payload))

    def _on_connected(self) -> None:
        greeting = self._calls.begin(self.encoder, self._open)
        if greeting is None:
            return
        with contextlib.suppress(TimeoutError, ConnectionError), self._send_lock:
            self._socket.send(*greeting, timeout=0)
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
