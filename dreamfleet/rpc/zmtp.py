"""The wire protocol of ZeroMQ (ZMTP 3.0, without encryption) over a local socket, spoken by the thread that calls."""

import contextlib
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any

Buffer = Any  # bytes, or anything else of one byte per element that offers its memory

READ_S = 0.02  # how long `read` waits at most

_MORE, _LONG, _COMMAND = 1, 2, 4  # flags of a frame
_SIGNATURE = b"\xff" + bytes(7) + b"\x01\x7f"
_GREETING = _SIGNATURE + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)  # version 3.0, no encryption
_SHORT_HEADER, _LONG_HEADER = struct.Struct(">BB"), struct.Struct(">BQ")
_TIMEVAL = struct.Struct("@ll")


class ZmtpConnection:
    """A connection as a ZeroMQ socket of the type DEALER has it; not safe to use by several threads.

    All methods raise `OSError` once the connection is lost.
    """

    def __init__(self, path: str):
        self.is_ready = False  # whether the server has answered the handshake
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            for option, seconds in ((socket.SO_RCVTIMEO, READ_S), (socket.SO_SNDTIMEO, READ_S)):
                self._socket.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(0, round(1e6 * seconds)))
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._unsent: list[Buffer] = []
        self._is_greeted = False
        self._chunk = memoryview(bytearray(1 << 16))
        self._received = bytearray()
        self._frames: list[bytes] = []  # of a message whose end has not come yet
        self._send([_GREETING, *_encode([_command(b"READY", {b"Socket-Type": b"DEALER"})], _COMMAND)])

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    @property
    def is_full(self) -> bool:
        """Whether something waits until there is room to send it."""
        return bool(self._unsent)

    @property
    def events(self) -> int:
        """What to poll for."""
        return select.POLLIN | (select.POLLOUT if self._unsent else 0)

    def send(self, frames: Sequence[Buffer]) -> None:
        """Sends a message, or keeps for `flush` what there is no room for; the frames must not change meanwhile."""
        self._send(_encode(frames))

    def flush(self) -> None:
        """Sends what waits, as far as there is room."""
        if self._unsent:
            self._send([])

    def read(self, *, blocking: bool) -> list[list[bytes]]:
        """Messages that have arrived, with `blocking` within `READ_S`."""
        try:
            size = self._socket.recv_into(self._chunk, 0, 0 if blocking else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        if not size:
            raise ConnectionResetError("the server has closed the connection")
        self._received += self._chunk[:size]
        return self._parse()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _send(self, buffers: list[Buffer]) -> None:
        self._unsent += buffers
        while self._unsent:
            try:
                size = self._socket.sendmsg(self._unsent, [], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            sent = 0
            while sent < len(self._unsent) and size >= len(self._unsent[sent]):
                size -= len(self._unsent[sent])
                sent += 1
            del self._unsent[:sent]
            if size:
                self._unsent[0] = memoryview(self._unsent[0]).cast("B")[size:]

    def _parse(self) -> list[list[bytes]]:
        messages: list[list[bytes]] = []
        received, start = self._received, 0
        if not self._is_greeted:
            if len(received) < len(_GREETING):
                return messages
            if received[0] != 0xFF or received[10] < 3 or received[12:16] != b"NULL":
                raise ConnectionRefusedError("the server does not speak ZMTP 3 without encryption")
            self._is_greeted, start = True, len(_GREETING)
        while len(received) - start >= _SHORT_HEADER.size:
            header = _LONG_HEADER if received[start] & _LONG else _SHORT_HEADER
            body = start + header.size
            if len(received) < body:
                break
            flags, size = header.unpack_from(received, start)
            if len(received) < body + size:
                break
            start = body + size
            frame = bytes(memoryview(received)[body:start])
            if flags & _COMMAND:
                self._obey(frame)
                continue
            self._frames.append(frame)
            if not flags & _MORE:
                messages.append(self._frames)
                self._frames = []
        del received[:start]
        return messages

    def _obey(self, command: bytes) -> None:
        name, body = command[1 : 1 + command[0]], command[1 + command[0] :]
        if name == b"READY":
            self.is_ready = True
        elif name == b"PING":
            self._send(_encode([b"\x04PONG" + body[2:]], _COMMAND))
        elif name == b"ERROR":
            raise ConnectionRefusedError(f"the server refused the connection: {body[1:].decode(errors='replace')}")


def _encode(frames: Sequence[Buffer], flags: int = 0) -> list[Buffer]:
    buffers: list[Buffer] = []
    for number, frame in enumerate(frames, 1):
        more = _MORE if number < len(frames) else 0
        if len(frame) < 256:
            header = _SHORT_HEADER.pack(flags | more, len(frame))
        else:
            header = _LONG_HEADER.pack(flags | more | _LONG, len(frame))
        buffers += (header, frame)
    return buffers


def _command(name: bytes, properties: dict[bytes, bytes]) -> bytes:
    fields = [bytes([len(key)]) + key + struct.pack(">I", len(value)) + value for key, value in properties.items()]
    return b"".join([bytes([len(name)]), name, *fields])
