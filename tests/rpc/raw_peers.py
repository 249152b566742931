"""Peers that can send a server anything: frames of the local engine written by hand, and a bare ZeroMQ socket."""

import select
import socket
import struct

import zmq

from dreamfleet.rpc import wire
from dreamfleet.rpc.keys import load_key
from dreamfleet.rpc.zmq import sockets
from tests.rpc.links import WAIT_S

GREETING = b"\x93dfrpc" + struct.pack("<H", wire.VERSION)


def pack(frames: list[bytes]) -> bytes:
    """A message as it is on a local socket."""
    return struct.pack(f"<I{len(frames)}Q", len(frames), *map(len, frames)) + b"".join(frames)


class LocalPeer:
    """One end of a local connection, with both greetings exchanged."""

    def __init__(self, connected: socket.socket):
        self.socket = connected
        self.socket.settimeout(WAIT_S)
        self.socket.sendall(GREETING)
        assert self.read(len(GREETING)) == GREETING

    def send(self, frames: list[bytes]) -> None:
        self.socket.sendall(pack(frames))

    def receive(self) -> list[bytes]:
        (count,) = struct.unpack("<I", self.read(4))
        lengths = struct.unpack(f"<{count}Q", self.read(8 * count))
        return [self.read(length) for length in lengths]

    def drain(self) -> None:
        """Takes in what has arrived, unread."""
        while select.select([self.socket], [], [], 0)[0]:
            assert self.socket.recv(1 << 16), "the other side has closed the connection"

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            assert part, "the other side has closed the connection"
            data += part
        return data

    def close(self) -> None:
        self.socket.close()


class ZmqPeer:
    """A socket with the key of the run."""

    def __init__(self, addr: str, key_file):
        self._context = zmq.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.linger = 0
        self._dealer.sndtimeo = self._dealer.rcvtimeo = int(1000 * WAIT_S)
        key = load_key(key_file, addr)
        self._dealer.curve_serverkey, self._dealer.curve_publickey = key.public, key.public
        self._dealer.curve_secretkey = key.secret
        self._dealer.connect(f"tcp://127.0.0.1:{addr.rpartition(':')[2]}")

    def send(self, frames: list[bytes]) -> None:
        self._dealer.send_multipart(sockets.cut(frames))

    def receive(self) -> list[bytes]:
        return sockets.join(self._dealer.recv_multipart())

    def drain(self) -> None:
        while self._dealer.poll(0):
            self._dealer.recv_multipart()

    def close(self) -> None:
        self._context.destroy(0)


def connect_peer(addr: str, key_file=None) -> LocalPeer | ZmqPeer:
    """A peer of the server at an address that is up, local or over TCP with a key."""
    if not addr.startswith("ipc:"):
        return ZmqPeer(addr, key_file)
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(WAIT_S)
    raw.connect(addr.removeprefix("ipc:"))
    return LocalPeer(raw)
