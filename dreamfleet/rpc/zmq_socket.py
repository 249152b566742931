"""ZeroMQ sockets as both sides of the engine use them: options, endpoints, sending, receiving, monitoring."""

from typing import Any

import zmq

from dreamfleet.rpc import address, codec

HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
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


def read_event(monitor: zmq.Socket) -> int:
    """The next event; raises `zmq.Again` if there is none."""
    frame = monitor.recv(zmq.NOBLOCK)
    monitor.recv()  # the endpoint
    return int.from_bytes(frame[:2], "little")


def send(socket: zmq.Socket, frames: list[codec.Buffer]) -> None:
    """Sends a whole message without blocking; raises `zmq.Again` before its first frame if there is no room."""
    flags = zmq.NOBLOCK | zmq.SNDMORE
    for frame in frames[:-1]:
        socket.send(frame, flags, len(frame) <= codec.LARGE)
    socket.send(frames[-1], zmq.NOBLOCK, len(frames[-1]) <= codec.LARGE)


def receive(socket: zmq.Socket) -> list[Any]:
    """The frames of the next message; raises `zmq.Again` if there is none."""
    frame = socket.recv(zmq.NOBLOCK, copy=False)
    frames = [frame]
    while frame.more:
        frame = socket.recv(zmq.NOBLOCK, copy=False)
        frames.append(frame)
    return frames
