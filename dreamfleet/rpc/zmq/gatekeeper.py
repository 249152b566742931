"""Decides who may connect to a ZeroMQ server, in a thread that sleeps unless somebody connects."""

import contextlib
import os
import socket

import zmq
from zmq.utils import z85

from dreamfleet import lifecycle
from dreamfleet.rpc.keys import KeyPair
from dreamfleet.rpc.limited_log import LimitedLog
from dreamfleet.rpc.zmq import sockets

_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | sockets.HANDSHAKE_FAILED


class Gatekeeper:
    """Admits only holders of the key, and no more connections than it can watch over; ends with its context."""

    def __init__(
        self,
        context: zmq.Context,
        server: zmq.Socket,
        key: KeyPair,
        log: LimitedLog,
        name: str,
        max_connections: int,
    ):
        self._key, self._log, self._max_connections = key, log, max_connections
        self._connections: set[int] = set()  # descriptors
        self._monitor = sockets.make_monitor(context, server, _EVENTS)
        self._zap = context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind("inproc://zeromq.zap.01")  # where the library asks about every peer with a key
        self._name = f"{name}-rpc-gate"

    def start(self) -> None:
        self._thread = lifecycle.spawn(self._loop, name=self._name)

    def join(self) -> None:
        self._thread.join()

    def _loop(self) -> None:
        try:
            while True:
                ready = [socket for socket, _ in zmq.zmq_poll([(self._zap, zmq.POLLIN), (self._monitor, zmq.POLLIN)])]
                if self._zap in ready:
                    self._answer()
                if self._monitor in ready:
                    self._handle(*sockets.read_event(self._monitor))
        except zmq.ContextTerminated:
            pass
        finally:
            self._zap.close()
            self._monitor.close()

    def _handle(self, event: int, fd: int) -> None:
        if event == zmq.EVENT_ACCEPTED and len(self._connections) >= self._max_connections:
            self._log.warning("crowd", f"refused a connection, as there are {self._max_connections} already")
            _hang_up(fd)
        elif event == zmq.EVENT_ACCEPTED:
            self._connections.add(fd)
        elif event & sockets.HANDSHAKE_FAILED:
            self._log.warning("handshake", "refused a connection without our protocol or key")
        else:
            self._connections.discard(fd)

    def _answer(self) -> None:
        version, number, _, peer, _, mechanism, *credentials = self._zap.recv_multipart()
        is_ours = mechanism == b"CURVE" and z85.encode(credentials[0]) == self._key.public
        if not is_ours:
            self._log.warning("key", f"refused a peer without the key of this run ({peer.decode()})")
        status = (b"200", b"OK") if is_ours else (b"400", b"unknown key")
        self._zap.send_multipart([version, number, *status, b"", b""])


def _hang_up(fd: int) -> None:
    """Ends a connection that belongs to the library, which then sees that it has ended."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:  # it may be gone already
        connection.shutdown(socket.SHUT_RDWR)
