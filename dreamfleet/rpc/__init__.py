"""Moving trees of arrays between processes: `make_server` and `make_client`, over ZeroMQ or over the portal library."""

from pathlib import Path

from dreamfleet.errors import ConfigError
from dreamfleet.rpc.address import is_ipc, remove_addr, resolve_addr
from dreamfleet.rpc.client import Client, Prepared
from dreamfleet.rpc.future import Future
from dreamfleet.rpc.keys import make_key
from dreamfleet.rpc.messages import Reply
from dreamfleet.rpc.server import Server

__all__ = [
    "Client",
    "Future",
    "Prepared",
    "Reply",
    "Server",
    "make_client",
    "make_key",
    "make_server",
    "remove_addr",
    "resolve_addr",
]


def make_server(
    addr: str | int,
    name: str,
    *,
    transport: str = "zmq",
    key_file: str | Path | None = None,
    max_message_bytes: int = 1 << 30,
    max_pending: int = 4096,
) -> Server:
    """A server for the role `name`; bind its methods, then start it."""
    options = {"max_message_bytes": max_message_bytes, "max_pending": max_pending}
    if transport in ("auto", "zmq") and is_ipc(str(addr)):
        from dreamfleet.rpc.local_server import LocalServer

        return LocalServer(str(addr), name, **options)
    if transport in ("auto", "zmq"):
        from dreamfleet.rpc.zmq_server import ZmqServer

        return ZmqServer(str(addr), name, key_file=key_file, **options)
    if transport == "portal":
        from dreamfleet.rpc.portal_server import PortalServer

        return PortalServer(str(addr), name, key_file=key_file, **options)
    raise _unknown_transport(transport)


def make_client(
    addr: str | int,
    name: str,
    *,
    peer: str,
    transport: str = "zmq",
    key_file: str | Path | None = None,
    max_inflight: int = 16,
    threaded: bool = True,
    meta: bool = True,
) -> Client:
    """A client of the role `peer`, which connects in the background.

    Without `threaded`, and on one machine, all happens on the thread of the caller: the lowest latency, for one call
    at a time.
    Without `meta` nothing is added to the data, as plain portal servers need it.
    """
    options = {"peer": peer, "max_inflight": max_inflight}
    if transport in ("auto", "zmq") and is_ipc(str(addr)):
        from dreamfleet.rpc.local_client import InlineLocalClient, ThreadedLocalClient

        return (ThreadedLocalClient if threaded else InlineLocalClient)(str(addr), name, **options)
    if transport in ("auto", "zmq"):
        from dreamfleet.rpc.zmq_client import ZmqClient

        return ZmqClient(str(addr), name, key_file=key_file, **options)
    if transport == "portal":
        from dreamfleet.rpc.portal_client import PortalClient

        return PortalClient(str(addr), name, has_meta=meta, key_file=key_file, **options)
    raise _unknown_transport(transport)


def _unknown_transport(transport: str) -> ConfigError:
    return ConfigError("transport", transport, "is not known", "use zmq or portal")
