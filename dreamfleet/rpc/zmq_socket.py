"""ZeroMQ sockets as both sides of the engine use them: options, endpoints, sending, receiving, monitoring."""

import zmq

from dreamfleet.rpc import address, codec

HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
# Plain numbers, because operations on the enumerations are slow enough to matter on every message.
POLLIN, POLLOUT = int(zmq.POLLIN), int(zmq.POLLOUT)
_EVENTS, _NOBLOCK, _NOBLOCK_MORE = int(zmq.EVENTS), int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)

_HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS = 2_000, 10_000


def make_socket(context: zmq.Context, kind: int) -> zmq.Socket:
    """A socket with the options that both sides share."""
    socket = context.socket(kind)
    socket.linger = 0
    socket.heartbeat_ivl = _HEARTBEAT_MS
    socket.heartbeat_timeout = _HEARTBEAT_TIMEOUT_MS
    return socket


def make_endpoint(addr: str, *, is_server: bool) -> str:
    """What ZeroMQ calls the address."""
    if address.is_ipc(addr):
        return f"ipc://{address.check_ipc(addr).removeprefix('ipc:')}"
    host, port = address.split_host(addr)
    return f"tcp://{address.bind_host(host) if is_server else address.connect_host(host)}:{port}"


def make_monitor(context: zmq.Context, socket: zmq.Socket, events: int) -> zmq.Socket:
    """A socket that tells what happens to the connections of `socket`."""
    endpoint = f"inproc://monitor-{id(socket)}"
    socket.monitor(endpoint, events)
    monitor = context.socket(zmq.PAIR)
    monitor.linger = 0
    monitor.rcvhwm = 0  # a full monitor would block the thread that moves the data
    monitor.connect(endpoint)
    return monitor


def has_message(socket: zmq.Socket) -> bool:
    """Whether something can be received; cheaper than to catch the error where there is nothing."""
    return bool(socket.get(_EVENTS) & POLLIN)


def read_event(monitor: zmq.Socket) -> int:
    """The next event of a monitor, which must have one."""
    event, _endpoint = monitor.recv_multipart(_NOBLOCK)
    return int.from_bytes(event[:2], "little")


def send(socket: zmq.Socket, frames: list[codec.Buffer]) -> None:
    """Sends a whole message without blocking; raises `zmq.Again` before its first frame if there is no room."""
    *leading, last = frames
    for frame in leading:
        socket.send(frame, _NOBLOCK_MORE, len(frame) <= codec.LARGE)
    socket.send(last, _NOBLOCK, len(last) <= codec.LARGE)


def receive(socket: zmq.Socket) -> list[zmq.Frame]:
    """The frames of the next message, which must be there."""
    frame = socket.recv(_NOBLOCK, False)
    frames = [frame]
    while frame.more:
        frame = socket.recv(_NOBLOCK, False)
        frames.append(frame)
    return frames
