"""ZeroMQ sockets as both sides of the engine use them.

A socket is used by one thread at a time, under a lock of its owner. Threads wait outside of that lock, on file
descriptors. A socket's descriptor only signals changes: `has_message` must have said no before a thread waits on it,
and whoever uses a socket while another thread waits must ask again afterwards, and wake that thread if it says yes.
"""

import math
import select
import time
from typing import Protocol, cast

import numpy as np
import zmq
from zmq.backend import Socket as BareSocket

from dreamfleet.base.addresses import Address, join_host
from dreamfleet.rpc import codec
from dreamfleet.rpc.addresses import connect_host, listen_host
from dreamfleet.rpc.io_thread import Wakeup

HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)

# Plain numbers and methods: the enumerations and wrappers are slow enough to matter on every message.
_EVENTS, _POLLIN, _POLLOUT = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.POLLOUT)
_NOBLOCK, _NOBLOCK_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_send, _receive, _get = BareSocket.send, BareSocket.recv, BareSocket.get

# A longer frame travels as pieces of this size, so that libzmq can refuse any longer one before it takes memory for it:
# its limit holds for peers that have not proved anything yet, too.
PIECE = 1 << 17
_ENCRYPTION = 64  # bytes, or fewer, that CURVE adds to a piece

_HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS = 2_000, 10_000
_CONNECT_MS = 2_000  # for one attempt to connect
HANDSHAKE_S = 10.0  # for a peer to prove that it has the key


def make_socket(context: zmq.Context, kind: int, *, is_ipv6: bool) -> zmq.Socket:
    """A socket with the options that both sides share."""
    socket = context.socket(kind)
    socket.linger = 0
    socket.ipv6 = is_ipv6
    socket.maxmsgsize = PIECE + _ENCRYPTION
    socket.heartbeat_ivl = _HEARTBEAT_MS
    socket.heartbeat_timeout = _HEARTBEAT_TIMEOUT_MS
    socket.handshake_ivl = int(1000 * HANDSHAKE_S)
    # Without it the kernel doubles its pauses between attempts while a link is cut, and comes back up to a minute late.
    socket.connect_timeout = _CONNECT_MS
    socket.tcp_maxrt = _HEARTBEAT_TIMEOUT_MS  # bytes that were not acknowledged for as long: the link is dead
    return socket


def make_endpoint(addr: Address, *, is_server: bool) -> str:
    """What ZeroMQ calls the address."""
    host = listen_host(addr.host) if is_server else connect_host(addr.host)
    return f"tcp://{join_host(host, addr.port)}"


def make_monitor(context: zmq.Context, socket: zmq.Socket, events: int) -> zmq.Socket:
    """A socket that tells what happens to the connections of `socket`."""
    endpoint = f"inproc://monitor-{id(socket)}"
    socket.monitor(endpoint, events)
    monitor = context.socket(zmq.PAIR)
    monitor.linger = 0
    monitor.rcvhwm = 0  # a full monitor would block the thread that moves the data
    monitor.connect(endpoint)
    return monitor


class Poll(Protocol):
    """What is used of `select.poll`."""

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]: ...


class SelectPoll:
    """The same for Windows, which has only `select`, and only for sockets."""

    def __init__(self, descriptors: list[int]):
        self._descriptors = descriptors

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        ready, _, _ = select.select(self._descriptors, [], [], None if timeout is None else timeout / 1000)
        return [(fd, _POLLIN) for fd in ready]


def make_poll(wakeup: Wakeup, *sockets: zmq.Socket) -> Poll:
    """Waits until it is woken, or one of the sockets signals a change."""
    descriptors = [wakeup.fd, *(cast(int, socket.fd) for socket in sockets)]
    if not hasattr(select, "poll"):
        return SelectPoll(descriptors)
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll


def wait(poll: Poll, wakeup: Wakeup, until: float) -> None:
    """Waits up to a monotonic time, or infinity."""
    timeout_ms = None if until == math.inf else max(0, math.ceil(1000 * (until - time.monotonic())))
    if wakeup.fd in dict(poll.poll(timeout_ms)):
        wakeup.clear()


def has_message(socket: zmq.Socket) -> bool:
    return bool(cast(int, _get(socket, _EVENTS)) & _POLLIN)


def has_room(socket: zmq.Socket) -> bool:
    return bool(cast(int, _get(socket, _EVENTS)) & _POLLOUT)


def read_event(monitor: zmq.Socket) -> tuple[int, int]:
    """The next event of a monitor, which must have one, and its value: a file descriptor, or an error."""
    event, _endpoint = monitor.recv_multipart(_NOBLOCK)
    return int.from_bytes(event[:2], "little"), int.from_bytes(event[2:6], "little")


def send(socket: zmq.Socket, frames: list[codec.Buffer]) -> None:
    """Sends a whole message without blocking; raises `zmq.Again` before its first frame if there is no room."""
    *leading, last = cut(frames)
    for piece in leading:
        _send(socket, piece, _NOBLOCK_MORE, len(piece) <= codec.LARGE)
    _send(socket, last, _NOBLOCK, len(last) <= codec.LARGE)


def cut(frames: list[codec.Buffer]) -> list[codec.Buffer]:
    """Each frame as any number of whole pieces and a shorter one, possibly empty, which is its end."""
    if max(map(len, frames)) < PIECE:
        return frames
    views = map(memoryview, frames)
    return [view[start : start + PIECE] for view in views for start in range(0, len(view) + 1, PIECE)]


def receive(socket: zmq.Socket) -> list[zmq.Frame]:
    """The pieces of the next message; raises `zmq.Again` where there is none."""
    piece = _receive(socket, _NOBLOCK, False)
    pieces = [piece]
    while piece.more:
        piece = _receive(socket, _NOBLOCK, False)
        pieces.append(piece)
    return pieces


def join(pieces: list[codec.Buffer], max_bytes: float = math.inf) -> list[codec.Buffer]:
    """The frames of a message, unless they have more than `max_bytes`: then they will not be read."""
    if max(map(len, pieces), default=0) < PIECE or sum(map(len, pieces)) > max_bytes:
        return pieces
    frames, start = [], 0
    for end, piece in enumerate(pieces, 1):
        if len(piece) < PIECE or end == len(pieces):
            frames.append(_concatenate(pieces[start:end]) if end - start > 1 else piece)
            start = end
    return frames


def _concatenate(pieces: list[codec.Buffer]) -> np.ndarray:
    """One frame, in memory that the codec can use as it is."""
    frame, end = codec.empty_aligned(sum(map(len, pieces))), 0
    for piece in pieces:
        start, end = end, end + len(piece)
        frame[start:end] = np.frombuffer(piece, np.uint8)
    return frame
