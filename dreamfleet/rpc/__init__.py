"""Moving trees of arrays between processes: `make_server` and `make_client`, over one of three engines.

`transport: auto` is the local engine for `ipc:` addresses and ZeroMQ for TCP; `zmq` and `portal` are TCP always.
"""

from collections.abc import Collection
from pathlib import Path

from dreamfleet.base.addresses import Address
from dreamfleet.base.hosts import explain_host
from dreamfleet.rpc.addresses import choose_engine, find_obstacle, remove_addr, resolve_addr
from dreamfleet.rpc.calls import Calls, Future
from dreamfleet.rpc.client import Client, Prepared
from dreamfleet.rpc.engine import Greeting, ServerEngine
from dreamfleet.rpc.keys import make_key, store_key
from dreamfleet.rpc.limited_log import LimitedLog
from dreamfleet.rpc.messages import Reply
from dreamfleet.rpc.server import Server
from dreamfleet.rpc.wire import ServerWire

__all__ = [
    "Client",
    "Future",
    "Greeting",
    "LimitedLog",
    "Prepared",
    "Reply",
    "Server",
    "find_obstacle",
    "make_client",
    "make_key",
    "make_server",
    "remove_addr",
    "resolve_addr",
    "store_key",
]


def make_server(
    addr: str | int,
    name: str,
    *,
    transport: str = "auto",
    protocol: int = 1,
    key_file: str | Path | None = None,
    plain_handshake: bool = False,
    max_message_bytes: int = 1 << 30,
    max_pending: int = 4096,
    max_connections: int = 4096,
) -> Server:
    """A server for the role `name`; bind its methods, then start it.

    Callers of another `protocol`, a number of one byte, are refused. `max_connections` is for TCP, where also peers
    without the key can open some. `plain_handshake` lets portal programs in without the key, also from other machines.
    """
    parsed = Address.parse(addr)
    engine = choose_engine(parsed, transport)
    limits = {"max_message_bytes": max_message_bytes, "max_pending": max_pending}
    access = {"key_file": key_file, "max_connections": max_connections}

    def make_engine(server: Server) -> ServerEngine:
        if engine == "portal":
            from dreamfleet.rpc.portal.server import PortalServerEngine

            options = {"protocol": protocol, "plain_handshake": plain_handshake, **limits, **access}
            return PortalServerEngine(server, parsed, **options)
        wire = ServerWire(server, protocol=protocol, **limits)
        if engine == "local":
            from dreamfleet.rpc.local.server import LocalServerEngine

            return LocalServerEngine(server, parsed, wire)
        from dreamfleet.rpc.zmq.server import ZmqServerEngine

        return ZmqServerEngine(server, parsed, wire, **access)

    return Server(parsed.text, name, make_engine)


def make_client(
    addr: str | int,
    name: str,
    *,
    peer: str,
    transport: str = "auto",
    protocol: int = 1,
    key_file: str | Path | None = None,
    max_inflight: int = 16,
    plain_handshake: bool = False,
    threaded: bool = True,
    greeting_s: float = 5.0,
    greeting: Greeting | None = None,
    repeated: Collection[str] = (),
    is_quiet: bool = False,
) -> Client:
    """A client of the role `peer`, which connects in the background.

    Without `threaded`, and on one machine, all happens on the thread of the caller: the lowest latency, for one call
    at a time. A server on this machine that has not greeted within `greeting_s` is tried again.
    A `greeting` goes first over every connection, and metadata with every call. Plain portal servers get neither, and
    do not hear of `protocol`; with `plain_handshake` they may be on other machines too.
    Calls of the methods in `repeated` are sent again after a lost connection. A client that `is_quiet` logs nothing.
    """
    parsed = Address.parse(addr)
    engine = choose_engine(parsed, transport)
    calls = Calls(name, peer, max_inflight, greeting, is_quiet=is_quiet)
    if reason := explain_host(parsed):
        calls.log.warning("address", f"{peer}: {reason}")
    if engine == "portal":
        from dreamfleet.rpc.portal.client import PortalClientEngine

        access = {"key_file": key_file, "plain_handshake": plain_handshake}
        return Client(calls, PortalClientEngine(parsed, calls, protocol=protocol, **access), repeated=repeated)
    if engine == "zmq":
        from dreamfleet.rpc.zmq.client import ZmqClientEngine

        return Client(calls, ZmqClientEngine(parsed, calls, protocol=protocol, key_file=key_file), repeated=repeated)
    from dreamfleet.rpc.local.client import InlineLocalEngine, ThreadedLocalEngine

    if threaded:
        return Client(
            calls, ThreadedLocalEngine(parsed, calls, protocol=protocol, greeting_s=greeting_s), repeated=repeated
        )
    inline = InlineLocalEngine(parsed, calls, protocol=protocol, greeting_s=greeting_s)
    return Client(calls, inline, inline, repeated)
