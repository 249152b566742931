"""How roles reach each other: servers and clients from the run's options, and factories sent between processes."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import cloudpickle

from dreamfleet import rpc
from dreamfleet.options import RoleOptions, key_file
from dreamfleet.roles.protocol import VERSION


class Caller(Protocol):
    """What a role needs of a client: calls that give futures, over a connection or in place."""

    peer: str

    def call(
        self,
        method: str,
        data: Any = None,
        *,
        meta: dict | None = None,
        repeat: bool = False,
        deadline_s: float | None = None,
    ) -> Any: ...

    def prepare(self, method: str, data: Any, meta: dict | None = None) -> rpc.Prepared: ...

    def wait_connected(self, timeout_s: float | None = None) -> bool: ...

    def stats(self) -> dict[str, float]: ...

    def close(self) -> None: ...


Handler = Callable[[Any, dict], Any]  # of data and metadata; returns data or an `rpc.Reply`


def serve(options: RoleOptions, role: str, methods: Mapping[str, Handler]) -> rpc.Server:
    """A server, not yet started, that answers to the methods at the role's address."""
    server = rpc.make_server(
        options.address(role), role, transport=options.transport, protocol=VERSION, key_file=key_file(options)
    )
    for method, handle in methods.items():
        server.bind(method, handle, takes_meta=True)
    return server


def connect(options: RoleOptions, role: str, name: str, *, max_inflight: int = 16, threaded: bool = True) -> rpc.Client:
    """A client of the role, called `name` on the other side."""
    return rpc.make_client(
        options.address(role),
        name,
        peer=role,
        transport=options.transport,
        protocol=VERSION,
        key_file=key_file(options),
        max_inflight=max_inflight,
        threaded=threaded,
        meta=options.transport != "portal" or options.portal_meta,
    )


@contextlib.contextmanager
def unless_failed(barrier: threading.Barrier) -> Iterator[None]:
    """Breaks the barrier if the block fails, or who waits there for this side would wait for ever."""
    try:
        yield
    except BaseException:
        barrier.abort()
        raise


def load_factory(factory: bytes | Callable[..., Any]) -> Callable[..., Any]:
    """A factory as it is, or from its cloudpickle bytes (which only a parent sends to its own child)."""
    return cloudpickle.loads(factory) if isinstance(factory, bytes) else factory
