"""The sockets of the portal library, made safe against what a peer may send; nothing else here imports the library.

A bad length, an undecodable message or a failed connect would end the whole process; here they end one connection. A
message that names shared memory is refused, because the library would attach to it and remove it.

Who is on the other side is settled by the handshake. Our clients offer a form of it that only our servers know and
answer. A plain server hangs up, without harm to itself, and is then called with the handshake that it expects. The
methods of others cannot be used to find out: an unknown method, or an unknown key in the data, ends a plain server.
"""

import contextlib
import multiprocessing
import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from dreamfleet.errors import BadRequest

_start_method = multiprocessing.get_start_method(allow_none=True)
import portal  # noqa: E402
from portal.buffers import RecvBuffer  # noqa: E402

multiprocessing.set_start_method(_start_method, force=True)  # importing the library sets it for the whole process

packlib = portal.packlib
HANDSHAKE = "portal_handshake"
WELCOME = b"dreamfleet"  # what our server answers to our own handshake
# In the number of every request to a plain server, which sends it back as it is: if the server is ours nevertheless, as
# after a restart between the two handshakes, it hangs up, and is offered our own handshake again.
PLAIN_MARK = 0x64 << 56
_POLL_MS = 200
_MOST_BUFFERS = 1000  # IOV_MAX, without one for the length
_SIGNALS = 1 << 16  # that wake a client


def own_form(handshake: str) -> str:
    """The handshake among ourselves: as long, and as secret, as the one for others."""
    return handshake[::-1]


def adopt_thread() -> None:
    """Marks this thread as one from which the library may start its own, which it warns about otherwise."""
    thread: Any = threading.current_thread()
    if not hasattr(thread, "children"):
        thread.children = []


def read_tree(body: memoryview) -> Any:
    """Decodes a message body; raises `BadRequest` for whatever is not one."""
    try:
        _check_body(body)
        return packlib.unpack(body)
    except BadRequest:
        raise
    except Exception as error:
        raise BadRequest(f"malformed message ({type(error).__name__}: {error})") from None


def _check_body(body: memoryview) -> None:
    """Checks a body before the library trusts it: count, sizes, and that many buffers (tree, specs, leaves)."""
    count = int.from_bytes(body[:8], "little")
    start = 8 + 8 * count
    if count < 2 or start > len(body):
        raise BadRequest("the message has no valid table of sizes")
    sizes = list(body[8:start].cast("B").cast("Q"))
    if start + sum(sizes) != len(body):
        raise BadRequest("the sizes in the message do not add up")
    specs = msgpack.unpackb(body[start + sizes[0] : start + sizes[0] + sizes[1]])
    if len(specs) != count - 2:
        raise BadRequest("the message has another number of values than it describes")
    if any(spec[0] not in ("none", "utf8", "bytes", "array") for spec in specs):
        raise BadRequest("the message has values of a kind that is not accepted")


class ServerSocket(portal.ServerSocket):
    """Closes only the connection that misbehaves; passes on only requests that can be decoded."""

    max_bytes: int
    max_connections: int
    on_refusal: Callable[[Any, bytes, str, str], None]  # peer, number of the request, method, reason
    on_bytes: Callable[[int, int], None]  # in, out

    def is_own(self, addr: Any) -> bool:
        """Whether one of our own clients is connected from there."""
        conn = self.conns.get(addr)
        return conn is not None and conn.handshake == self._own_handshake

    def hang_up(self, addr: Any) -> None:
        """Ends a connection, from any thread."""
        if conn := self.conns.get(addr):
            with contextlib.suppress(OSError):  # it is gone already
                conn.sock.shutdown(socket.SHUT_RDWR)

    def recv(self, timeout: float | None = None) -> tuple[Any, memoryview]:
        addr, data = super().recv(timeout)
        self.on_bytes(len(data), 0)
        number, method = bytes(data[:8]).ljust(8, b"\0"), ""
        if number[-1] == PLAIN_MARK >> 56 and not self.is_own(addr):
            self.hang_up(addr)
            raise TimeoutError  # as if nothing had come
        try:
            if len(data) > self.max_bytes:
                raise BadRequest(f"message of {len(data)} bytes is above the limit of {self.max_bytes}")
            start = 16 + int.from_bytes(data[8:16], "little")
            method = str(data[16:start], "utf-8", "replace")
            _check_body(data[start:])
        except Exception as error:
            self.on_refusal(addr, number, method, str(error) or type(error).__name__)
            raise TimeoutError from None  # as if nothing had come
        return addr, data

    def send(self, addr: Any, *data: Any) -> None:
        buffers = _pack(data)
        self.on_bytes(0, sum(map(len, buffers)))
        super().send(addr, *buffers)

    def _recv(self, conn: Any) -> None:
        try:
            super()._recv(conn)
        except Exception as error:
            if conn.addr in self.conns:
                self._disconnect(conn, error)

    def _handshake(self, conn: Any) -> None:
        received = conn.sock.recv(len(self.handshake) - len(conn.handshake))
        if not received:
            raise ConnectionResetError  # the peer is gone; without this, its end is read again and again
        conn.handshake += received
        if conn.handshake == self._own_handshake:
            self.send(conn.addr, WELCOME)
        elif not any(form.startswith(conn.handshake) for form in (self.handshake, self._own_handshake)):
            self._disconnect(conn, ValueError("unknown handshake"))

    @property
    def _own_handshake(self) -> bytes:
        return own_form(self.handshake.decode()).encode()

    def _accept(self, sock: Any) -> None:
        with contextlib.suppress(OSError):  # the peer was gone before it was accepted
            if len(self.conns) >= self.max_connections:
                sock.accept()[0].close()
            else:
                super()._accept(sock)


def _pack(buffers: Sequence[Any]) -> list[Any]:
    """Buffers that the library can send: none of them empty, which it refuses, and no more than go into one call."""
    kept = [part for part in buffers if len(part)]
    return kept if len(kept) <= _MOST_BUFFERS else [b"".join(kept)]


def guard(
    server_socket: Any,
    *,
    max_bytes: int,
    max_connections: int,
    on_refusal: Callable[..., None],
    on_bytes: Callable[..., None],
) -> None:
    """Turns the socket that a `portal.Server` has made for itself into a `ServerSocket`."""
    server_socket.max_bytes, server_socket.max_connections = max_bytes, max_connections
    server_socket.on_refusal, server_socket.on_bytes = on_refusal, on_bytes
    server_socket.__class__ = ServerSocket


class ClientSocket(portal.ClientSocket):
    """Connects again whatever happens to the connection, and sleeps while there is nothing to send or to read.

    The library's own loop looks five thousand times a second, and after a wake-up that was left over without a pause.
    `callbacks_conn` are called when it is known who is on the other side, which is then in `is_plain`. Whoever was ours
    once stays so: then a connection that is lost during the handshake says nothing.
    """

    is_plain: bool | None = None

    def send(self, *data: Any, timeout: float | None = None) -> None:
        super().send(*_pack(data), timeout=timeout)

    def close(self, timeout: float | None = None) -> None:
        self.running = False
        os.write(self.set_signal, bytes(1))
        super().close(timeout)

    def _loop(self) -> None:
        pause, handshake = threading.Event(), self.options.handshake
        is_refused = False
        while self.running:
            sock, tries_plain = None, is_refused
            self.options.handshake = handshake if tries_plain else own_form(handshake)
            with contextlib.suppress(Exception):
                if sock := self._connect():
                    is_refused = not tries_plain and self.is_plain is not False
                    self._converse(sock, tries_plain)
            self.isconn.clear()
            self.sendq.clear()
            if sock:
                sock.close()
            if not self.running:
                return
            is_refused = is_refused and self.is_plain is not False
            for callback in self.callbacks_disc:
                callback()
            pause.wait(self.options.connect_wait)  # a server that hangs up at once is not asked without end

    def _converse(self, sock: Any, is_plain: bool) -> None:
        """Sends and receives until the connection is lost."""
        poll = select.poll()
        poll.register(self.get_signal, select.POLLIN)
        if is_plain:
            self._begin(is_plain)
        incoming = self._make_buffer()
        while self.running or self.sendq:
            poll.register(sock, select.POLLIN | (select.POLLOUT if self.sendq else 0))
            if self.get_signal in dict(poll.poll(_POLL_MS)):
                os.read(self.get_signal, _SIGNALS)
            with contextlib.suppress(BlockingIOError):
                while not incoming.done():
                    incoming.recv(sock)
                message, incoming = incoming.result(), self._make_buffer()
                if not self.connected:
                    if message != WELCOME:
                        raise ConnectionResetError
                    self._begin(is_plain)
                    continue
                for callback in self.callbacks_recv:
                    callback(message)
            # After a reset there may be answers left to read: reading tells when there are none.
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                self._flush(sock)

    def _begin(self, is_plain: bool) -> None:
        self.is_plain = is_plain
        self.isconn.set()
        for callback in self.callbacks_conn:
            callback()

    def _flush(self, sock: Any) -> None:
        while self.sendq:
            self.sendq[0].send(sock)
            if self.sendq[0].done():
                self.sendq.popleft()

    def _make_buffer(self) -> Any:
        return RecvBuffer(maxsize=self.options.max_msg_size)
