"""The wire protocol of ZeroMQ (ZMTP 3.0, without encryption) over a local socket, spoken by the thread that calls.

On one machine this takes the place of libzmq, whose threads between a call and the socket cost more than the call.
"""

import select
import socket
import struct
import threading
from collections.abc import Sequence

from dreamfleet.rpc.codec import Buffer, empty_aligned

READ_S = 0.02  # how long a blocking `read` waits at most

_CHUNK = 1 << 16  # bytes read at once; larger frames are read right into their own memory
_BUFFER_BYTES = 1 << 20  # asked of the operating system, which may give less
_MOST_BUFFERS = 512  # in one system call
_MORE, _LONG, _COMMAND = 1, 2, 4  # flags of a frame
_GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)  # version 3.0
_SHORT_HEADER, _LONG_HEADER = struct.Struct(">BB"), struct.Struct(">BQ")


class ZmtpConnection:
    """One end of a connection, of the socket type `kind`; one thread reads, any may send.

    All methods raise `OSError` once the connection is lost, or for data that is not of the protocol.
    """

    def __init__(self, connected: socket.socket, kind: bytes, max_bytes: int):
        self.is_ready = False  # whether the other side has answered the handshake
        self._socket = connected
        self._max_bytes = max_bytes  # of one message
        self._lock = threading.Lock()  # for sending
        self._unsent: list[Buffer] = []
        self._is_greeted = False
        self._chunk = memoryview(bytearray(_CHUNK))
        self._received = bytearray()
        self._frames: list[Buffer] = []  # of a message whose end has not come yet
        self._frames_bytes = 0
        self._large: tuple[int, memoryview] | None = None  # flags and memory of a frame that is being read
        self._large_size = 0  # of it, read so far
        self._send([_GREETING, *_encode([_command(b"READY", {b"Socket-Type": kind})], _COMMAND)])

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    @property
    def unsent(self) -> int:
        """How many buffers wait until there is room to send them."""
        return len(self._unsent)

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

    def read(self, *, blocking: bool = False) -> list[list[Buffer]]:
        """Messages that have arrived, with `blocking` within `READ_S`."""
        target = self._chunk if self._large is None else self._large[1][self._large_size :]
        try:
            size = self._socket.recv_into(target, 0, 0 if blocking else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        if not size:
            raise ConnectionResetError("the other side has closed the connection")
        if (message := self._find_message(size)) is not None:
            return [[message]]
        messages: list[list[Buffer]] = []
        if self._large is None:
            self._take(target[:size], messages)
        elif size < len(target):
            self._large_size += size
        else:
            flags, memory = self._large
            self._large = None
            self._add_frame(flags, memory, messages)
        return messages

    def close(self) -> None:
        self._socket.close()

    def _send(self, buffers: list[Buffer]) -> None:
        with self._lock:
            self._unsent += buffers
            while self._unsent:
                try:
                    size = self._socket.sendmsg(self._unsent[:_MOST_BUFFERS], [], socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return
                sent = 0
                while sent < len(self._unsent) and size >= len(self._unsent[sent]):
                    size -= len(self._unsent[sent])
                    sent += 1
                del self._unsent[:sent]
                if size:
                    self._unsent[0] = memoryview(self._unsent[0]).cast("B")[size:]

    def _find_message(self, size: int) -> bytes | None:
        """What was received, if it is just one message of one frame, as most are."""
        chunk = self._chunk
        if self._large or self._received or self._frames or not self.is_ready or size > self._max_bytes:
            return None
        header = _LONG_HEADER if chunk[0] & _LONG else _SHORT_HEADER
        flags, length = header.unpack_from(chunk)
        is_message = not flags & ~_LONG and size == header.size + length
        return bytes(chunk[header.size : size]) if is_message else None

    def _take(self, chunk: memoryview, messages: list[list[Buffer]]) -> None:
        """Takes all whole frames out of what was received, and keeps the rest for the next time."""
        if not self._received:  # as most chunks are whole messages
            self._received += chunk[self._parse(chunk, messages) :]
            return
        self._received += chunk
        with memoryview(self._received) as received:
            size = self._parse(received, messages)
        del self._received[:size]

    def _parse(self, received: memoryview, messages: list[list[Buffer]]) -> int:
        """Takes all whole frames out of a buffer; returns how much of it that was."""
        start = 0
        if not self._is_greeted:
            if not _is_greeting(received):
                return 0
            self._is_greeted, start = True, len(_GREETING)
        while len(received) - start >= _SHORT_HEADER.size:
            header = _LONG_HEADER if received[start] & _LONG else _SHORT_HEADER
            body = start + header.size
            if len(received) < body:
                break
            flags, size = header.unpack_from(received, start)
            if size > self._max_bytes - self._frames_bytes:
                raise ConnectionAbortedError(f"a message of {size} bytes or more is above the limit")
            if len(received) < body + size:
                if size > _CHUNK:
                    self._begin_large(flags, size, received[body:])
                    start = len(received)
                break
            start = body + size
            self._add_frame(flags, bytes(received[body:start]), messages)
        return start

    def _begin_large(self, flags: int, size: int, begin: memoryview) -> None:
        memory = empty_aligned(size).data
        memory[: len(begin)] = begin
        self._large, self._large_size = (flags, memory), len(begin)
        begin.release()

    def _add_frame(self, flags: int, frame: Buffer, messages: list[list[Buffer]]) -> None:
        if flags & _COMMAND:
            self._obey(bytes(frame))
            return
        if not self.is_ready:
            raise ConnectionAbortedError("a message came before the handshake")
        self._frames.append(frame)
        self._frames_bytes += len(frame) + _LONG_HEADER.size
        if not flags & _MORE:
            messages.append(self._frames)
            self._frames, self._frames_bytes = [], 0

    def _obey(self, command: bytes) -> None:
        size = command[0] if command else 0
        name, body = command[1 : 1 + size], command[1 + size :]
        if name == b"READY":
            self.is_ready = True
        elif name == b"PING":
            self._send(_encode([b"\x04PONG" + body[2:]], _COMMAND))
        elif name == b"ERROR":
            raise ConnectionRefusedError(f"the other side refused the connection: {body[1:]!r}")


def make_socket() -> socket.socket:
    """A socket with the options that both sides share."""
    made = socket.socket(socket.AF_UNIX)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        made.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", 0, round(1e6 * READ_S)))
    return made


def _is_greeting(received: memoryview) -> bool:
    """Whether the greeting is complete; raises if it is none."""
    if received[:1] != b"\xff" or (len(received) > 10 and received[10] < 3):
        raise ConnectionRefusedError("the other side does not speak ZMTP 3")
    if len(received) < len(_GREETING):
        return False
    if received[12:32] != _GREETING[12:32]:
        raise ConnectionRefusedError("the other side wants encryption, which local connections have not")
    return True


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
