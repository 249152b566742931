"""Frames over a unix socket, sent and read by the threads that call: both sides greet, then messages follow.

A greeting is a magic number and the version of the wire format. A message is its number of frames, their lengths, and
the frames.
"""

import collections
import select
import socket
import struct
import threading
from collections.abc import Sequence

from dreamfleet.rpc import wire
from dreamfleet.rpc.codec import Buffer, empty_aligned

READ_S = 0.02  # how long a blocking `read` waits at most

_CHUNK = 1 << 16  # bytes read at once; larger frames are read right into their own memory
_BUFFER_BYTES = 1 << 20  # asked of the operating system, which may give less
_MOST_BUFFERS = 512  # in one system call
_MOST_FRAMES = 1 << 16  # of one message: frames after the first are larger than `codec.LARGE`
_MAGIC = b"\x93dfrpc"
_GREETING = struct.Struct("<6sH")
_COUNT, _LENGTH, _SINGLE = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<IQ")


class OtherFormat(ConnectionRefusedError):
    """The other side is ours, but speaks another version of the wire format."""


class Connection:
    """One end of a connection; one thread reads, any may send.

    All methods raise `OSError` once the connection is lost, or for data that is not of the protocol.
    """

    def __init__(self, connected: socket.socket, max_bytes: int):
        self.is_ready = False  # whether the other side has greeted
        self._socket = connected
        self._max_bytes = max_bytes  # of one message
        self._lock = threading.Lock()  # for sending
        self.unsent: list[Buffer] = []  # which wait until there is room to send them
        self._chunk = memoryview(bytearray(_CHUNK))
        self._received = bytearray()
        self._lengths: collections.deque[int] = collections.deque()  # of the frames of a message that have not come yet
        self._frames: list[Buffer] = []  # of it, that have
        self._large: memoryview | None = None  # memory of a frame that is being read
        self._large_size = 0  # of it, read so far
        self._send([_GREETING.pack(_MAGIC, wire.VERSION)])

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    @property
    def events(self) -> int:
        """What to poll for."""
        return select.POLLIN | (select.POLLOUT if self.unsent else 0)

    def send(self, frames: Sequence[Buffer]) -> None:
        """Sends a message, or keeps for `flush` what there is no room for; the frames must not change meanwhile."""
        if len(frames) == 1:
            header = _SINGLE.pack(1, len(frames[0]))
        else:
            header = struct.pack(f"<I{len(frames)}Q", len(frames), *map(len, frames))
        self._send([header, *frames])

    def flush(self) -> None:
        """Sends what waits, as far as there is room."""
        if self.unsent:
            self._send([])

    def read(self, *, blocking: bool = False) -> list[list[Buffer]]:
        """Messages that have arrived, with `blocking` within `READ_S`."""
        target = self._chunk if self._large is None else self._large[self._large_size :]
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
            memory, self._large = self._large, None
            self._add_frame(memory, messages)
            self._take(target[size:], messages)  # frames without bytes may follow, or another large one
        return messages

    def close(self) -> None:
        self._socket.close()

    def _send(self, buffers: list[Buffer]) -> None:
        with self._lock:
            self.unsent += buffers
            while self.unsent:
                try:
                    size = self._socket.sendmsg(self.unsent[:_MOST_BUFFERS], [], socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return
                sent = 0
                while sent < len(self.unsent) and size >= len(self.unsent[sent]):
                    size -= len(self.unsent[sent])
                    sent += 1
                del self.unsent[:sent]
                if size:
                    self.unsent[0] = memoryview(self.unsent[0]).cast("B")[size:]

    def _find_message(self, size: int) -> bytes | None:
        """What was received, if it is just one message of one frame, as most are."""
        if self._large or self._received or self._lengths or not self.is_ready:
            return None
        if not _SINGLE.size <= size <= self._max_bytes:
            return None
        count, length = _SINGLE.unpack_from(self._chunk)
        is_message = count == 1 and size == _SINGLE.size + length
        return bytes(self._chunk[_SINGLE.size : size]) if is_message else None

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
        if not self.is_ready:
            if not _is_greeting(received):
                return 0
            self.is_ready, start = True, _GREETING.size
        while True:
            if not self._lengths:
                start += self._parse_header(received, start)
                if not self._lengths:
                    return start
            end = start + self._lengths[0]
            if len(received) < end:
                if self._lengths[0] > _CHUNK:
                    self._begin_large(received[start:])
                    return len(received)
                return start
            self._add_frame(bytes(received[start:end]), messages)
            start = end

    def _parse_header(self, received: memoryview, start: int) -> int:
        """Reads the lengths of the next message, once they are there; returns how much of the buffer that was."""
        if len(received) < start + _COUNT.size:
            return 0
        (count,) = _COUNT.unpack_from(received, start)
        if not 1 <= count <= _MOST_FRAMES:
            raise ConnectionAbortedError(f"a message of {count} frames is not possible")
        size = _COUNT.size + count * _LENGTH.size
        if len(received) < start + size:
            return 0
        lengths = collections.deque(struct.unpack_from(f"<{count}Q", received, start + _COUNT.size))
        if (total := sum(lengths)) > self._max_bytes:
            raise ConnectionAbortedError(f"a message of {total} bytes is above the limit")
        self._lengths = lengths
        return size

    def _begin_large(self, begin: memoryview) -> None:
        self._large, self._large_size = empty_aligned(self._lengths[0]).data, len(begin)
        self._large[: len(begin)] = begin
        begin.release()

    def _add_frame(self, frame: Buffer, messages: list[list[Buffer]]) -> None:
        self._frames.append(frame)
        self._lengths.popleft()
        if not self._lengths:
            messages.append(self._frames)
            self._frames = []


def make_socket() -> socket.socket:
    """A socket with the options that both sides share."""
    made = socket.socket(socket.AF_UNIX)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        made.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", 0, round(1e6 * READ_S)))
    return made


def _is_greeting(received: memoryview) -> bool:
    """Whether the greeting is complete; raises if it is none, or that of another version."""
    if bytes(received[: len(_MAGIC)]) != _MAGIC[: len(received)]:
        raise ConnectionRefusedError("the other side does not speak our protocol")
    if len(received) < _GREETING.size:
        return False
    _, version = _GREETING.unpack_from(received)
    if version != wire.VERSION:
        versions = f"the other side speaks wire format {version}, this side speaks wire format {wire.VERSION}"
        raise OtherFormat(f"{versions}: install the same version of dreamfleet on both")
    return True
