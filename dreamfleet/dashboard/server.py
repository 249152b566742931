"""Listens for browsers until it is asked to stop: `dreamfleet dashboard`, and a process beside `train --dashboard`."""

import asyncio
import contextlib
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dreamfleet.dashboard.access import is_loopback
from dreamfleet.dashboard.app import make_app
from dreamfleet.dashboard.hub import Hub
from dreamfleet.errors import ConfigError

REQUEST_S = 10.0  # for a connection to send a request
SIGNALS = (signal.SIGINT, signal.SIGTERM)
FIRST_PORT, PORTS = 8787, 20
MAX_CONNECTIONS = 256
MAX_REQUEST_BYTES = 64 << 10  # of the head: the names of many runs fit
CLOSE_S = 3


def serve(roots: Sequence[Path], host: str, port: int | None, on_ready: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM; `on_ready` gets the address to open. Without a port it takes a free one."""
    token = "" if is_loopback(host) else secrets.token_urlsafe(24)
    with listen_somewhere(host) if port is None else listen(host, port) as listener:
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}/"
        server = make_server(roots, token)
        on_ready(f"{address}?token={token}" if token else address)
        asyncio.run(server.serve(sockets=[listener]))


def listen_somewhere(host: str) -> socket.socket:
    """A socket on the first free one of the ports that the dashboard has by habit, so that links stay valid."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        with contextlib.suppress(ConfigError):
            return listen(host, port)
    return listen(host, 0)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; raises ConfigError if there is no such address or it is taken."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, number)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # or a second one could bind the same port
    except OSError as error:
        remedy = "give another --port (0: any free one) or another --host"
        raise ConfigError("port", port, f"cannot be used on {host} ({error.strerror or error})", remedy) from None
    return listener


def make_server(roots: Sequence[Path], token: str = "") -> uvicorn.Server:
    """A server with limits that one browser or a broken client cannot exceed."""
    server: uvicorn.Server

    def is_stopping() -> bool:
        return server.should_exit

    hub = Hub(roots)
    config = uvicorn.Config(
        make_app(hub, token, is_stopping),
        http=ImpatientProtocol,
        ws="none",
        access_log=False,  # addresses may hold a token
        log_level="critical",
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_REQUEST_BYTES,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=CLOSE_S,
    )
    server = Server(config)
    return server


class Server(uvicorn.Server):
    """Ends in order at a signal, and says no more about it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)


class ImpatientProtocol(H11Protocol):
    """Closes connections on which a request is not complete in time; they would otherwise stay for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def _look(self, last: object) -> None:
        """`last` is the request of the last look."""
        request = self.cycle or self
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_waiting and request is last:
            self.transport.close()
        self._next_look = self.loop.call_later(REQUEST_S, self._look, request)
