"""Decides who may connect to a ZeroMQ server, in a thread that sleeps unless somebody connects."""

import socket
import time

import zmq
from zmq.utils import z85

from dreamfleet import lifecycle
from dreamfleet.rpc.keys import KeyPair
from dreamfleet.rpc.limited_log import LimitedLog
from dreamfleet.rpc.zmq import sockets

_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
MAX_UNPROVEN = 128  # connections from one address that have not shown the key yet
_MAX_NAMED = 1024  # addresses that are logged
_MANY_UNSEEN = 100  # connections that ended too soon to see their address, to be logged


class Gatekeeper:
    """Admits only holders of the key, and few connections that have not shown it yet; ends with its context.

    The library tells the descriptor of a connection when it begins and ends, but only the address of one that shows the
    key. Any connection from there may count as that one: what is limited is their number by address.
    """

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
        self._unproven: dict[int, tuple[str, float]] = {}  # of these -> address and time of arrival, oldest first
        self._strangers: set[str] = set()  # addresses that were logged
        self._unseen = 0
        self._family = socket.AF_INET6 if server.ipv6 else socket.AF_INET
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
                zmq.zmq_poll([(self._zap, zmq.POLLIN), (self._monitor, zmq.POLLIN)])
                is_asked = sockets.has_message(self._zap)
                while sockets.has_message(self._monitor):  # so that who asks is known to have arrived
                    self._handle(*sockets.read_event(self._monitor))
                if is_asked:
                    self._answer()
        except zmq.ContextTerminated:
            pass
        finally:
            self._zap.close()
            self._monitor.close()

    def _handle(self, event: int, fd: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._connections.add(fd)
            self._inspect(fd)
        else:
            self._connections.discard(fd)
            address, _ = self._unproven.pop(fd, (None, 0.0))
            if address is not None:
                self._log_stranger(address)

    def _inspect(self, fd: int) -> None:
        """Notes where a new connection comes from, or ends it if there are too many."""
        try:
            # The descriptor belongs to the library, which may have closed it already; it sees a shutdown.
            with socket.fromfd(fd, self._family, socket.SOCK_STREAM) as connection:
                address = str(next(iter(connection.getpeername()), ""))
                if reason := self._find_crowd(address):
                    self._log.warning("crowd", f"refused a connection from {address}: {reason}")
                    connection.shutdown(socket.SHUT_RDWR)
                else:
                    self._unproven[fd] = address, time.monotonic()
        except OSError:
            self._unseen += 1
            if self._unseen == _MANY_UNSEEN:
                self._log.warning(
                    "unseen", f"refused {_MANY_UNSEEN} connections that ended before we saw their address"
                )

    def _find_crowd(self, address: str) -> str:
        """Why there is no room for one more connection, if so."""
        if len(self._connections) > self._max_connections:
            return f"there are {self._max_connections} already"
        recent = time.monotonic() - 2 * sockets.HANDSHAKE_S  # the library has ended any older one, unless it is ours
        while self._unproven and next(iter(self._unproven.values()))[1] < recent:
            del self._unproven[next(iter(self._unproven))]
        if len(self._of(address)) >= MAX_UNPROVEN:
            return f"{MAX_UNPROVEN} from there have not shown the key of this run yet"
        return ""

    def _of(self, address: str) -> list[int]:
        return [fd for fd, (other, _) in self._unproven.items() if other == address]

    def _answer(self) -> None:
        version, number, _, peer, _, mechanism, *credentials = self._zap.recv_multipart()
        address = peer.decode()
        is_ours = mechanism == b"CURVE" and z85.encode(credentials[0]) == self._key.public
        if is_ours:
            for fd in self._of(address)[:1]:
                del self._unproven[fd]
        else:
            self._log_stranger(address)
        status = (b"200", b"OK") if is_ours else (b"400", b"unknown key")
        self._zap.send_multipart([version, number, *status, b"", b""])

    def _log_stranger(self, address: str) -> None:
        """Once for an address, as whoever knocks there knocks again."""
        if address in self._strangers or len(self._strangers) >= _MAX_NAMED:
            return
        self._strangers.add(address)
        self._log.warning(f"stranger {address}", f"refused {address}, which has not shown the key of this run")
