"""How roles reach each other: servers and clients from the run's arguments, and factories sent between processes."""

from collections.abc import Callable
from typing import Any, Protocol

import cloudpickle
import elements

from dreamfleet import rpc
from dreamfleet.options.roles import key_file


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


def serve(args: elements.Config, role: str) -> rpc.Server:
    """A server, not yet started, at the role's address."""
    return rpc.make_server(args[f"{role}_addr"], role, transport=args.transport, key_file=key_file(args))


def connect(
    args: elements.Config, role: str, name: str, *, max_inflight: int = 16, threaded: bool = True
) -> rpc.Client:
    """A client of the role, called `name` on the other side."""
    return rpc.make_client(
        args[f"{role}_addr"],
        name,
        peer=role,
        transport=args.transport,
        key_file=key_file(args),
        max_inflight=max_inflight,
        threaded=threaded,
        meta=args.transport != "portal" or args.portal_meta,
    )


def load_factory(factory: bytes | Callable[..., Any]) -> Callable[..., Any]:
    """A factory as it is, or from its cloudpickle bytes (which only a parent sends to its own child)."""
    return cloudpickle.loads(factory) if isinstance(factory, bytes) else factory
