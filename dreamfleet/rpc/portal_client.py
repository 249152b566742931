"""The portal engine of the client: the library's socket, with our futures, deadlines and reconnects."""

import threading
from pathlib import Path
from typing import Any

from dreamfleet.errors import BadRequest, RpcError
from dreamfleet.rpc import address, portal_data, portal_guard
from dreamfleet.rpc.client import Client
from dreamfleet.rpc.future import Future
from dreamfleet.rpc.keys import load_key
from dreamfleet.rpc.messages import Reply

_CLOSE_S = 2.0
_REFUSED = (1, 2, 3, 5)  # status of answers to requests that the library itself does not accept


class PortalClient(Client):
    """Calls plain portal servers as well as ours; with plain ones, metadata has to be off."""

    def __init__(
        self, addr: str, name: str, *, peer: str, key_file: str | Path | None, max_inflight: int, has_meta: bool
    ):
        super().__init__(name, peer, max_inflight)
        host, port = address.split_host(addr)
        handshake = portal_guard.HANDSHAKE if address.is_loopback(host) else load_key(key_file, addr).token()
        self._has_meta = has_meta
        self._send_lock = threading.Lock()
        portal_guard.adopt_thread()
        self._socket = portal_guard.ClientSocket(
            f"{address.connect_host(host)}:{port}", name, start=False, logging=False, handshake=handshake
        )
        self._socket.callbacks_recv.append(self._read)
        self._socket.callbacks_conn.append(self._on_connected)
        self._socket.callbacks_disc.append(self._on_lost)
        self._socket.start()

    def _encode(self, number: int, method: str, data: Any, meta: dict[str, Any] | None) -> list[Any]:
        if self._has_meta:
            data = portal_data.join_meta(data, meta)
        args = () if data is None else (portal_data.prepare(data),)
        name = method.encode()
        head = [number.to_bytes(8, "little"), len(name).to_bytes(8, "little"), name]
        return head + portal_guard.packlib.pack(args)

    def _submit(self, future: Future) -> None:
        with self._send_lock:
            self._send(future)

    def _send(self, future: Future) -> None:
        payload = future.payload
        if payload is None or future.is_sent or not self._socket.connected:
            return  # given up meanwhile, or sent when there is a connection
        try:
            self._socket.send(*payload, timeout=0)
        except TimeoutError:
            return
        future.is_sent = True
        self._bytes_out += sum(map(len, payload))

    def _on_connected(self) -> None:
        with self._send_lock:
            self._note_connected()
            for future in list(self._inflight.values()):
                self._send(future)

    def _on_lost(self) -> None:
        with self._send_lock:
            _, lost = self._note_lost()
        self._fail_lost(lost)

    def _read(self, message: memoryview) -> None:
        self._socket.recv(timeout=0)  # the library also queues the message
        self._bytes_in += len(message)
        if len(message) < 16:
            self._limited_log.warning("answer", f"{self.peer} sent an answer that cannot be read")
            return
        number, status = (int.from_bytes(message[start : start + 8], "little") for start in (0, 8))
        future = self._inflight.get(number)
        method = future.method if future else ""
        try:
            outcome = self._read_answer(method, status, message[16:])
        except BadRequest as error:
            outcome = error
        self._finish(number, outcome)

    def _read_answer(self, method: str, status: int, body: memoryview) -> Reply | RpcError:
        if status:
            text = str(body, "utf-8", "replace")
            return portal_data.text_to_error(text, self.peer, method, is_refusal=status in _REFUSED)
        data, meta = portal_data.split_meta(portal_data.restore(portal_guard.read_tree(body)))
        return Reply(data, meta or {})

    def _hang_up(self) -> None:
        self._socket.sendq.clear()
        if threading.current_thread() is self._socket.thread.thread:
            self._socket.running = False
        else:
            self._socket.close(_CLOSE_S)
