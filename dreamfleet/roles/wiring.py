"""How roles reach each other: servers and clients from the run's options, and factories sent between processes."""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import cloudpickle

from dreamfleet import rpc
from dreamfleet.base.addresses import AUTO
from dreamfleet.errors import ConfigError
from dreamfleet.options import RoleOptions, key_file
from dreamfleet.roles.hello import Introduction, Reception, make_hello
from dreamfleet.roles.protocol import HELLO, SENT_AGAIN, VERSION

LOGGER_PATIENCE_S = 1.0  # for a logger that does not keep up; what it has no room for then is dropped


class Caller(Protocol):
    """What a role needs of a client: calls that give futures, over a connection or in place."""

    peer: str
    session: str  # by which the other side knows this client, if it was presented

    @property
    def is_plain(self) -> bool | None:
        """Whether the other side is a plain portal program, which takes no metadata; None while that is not known."""
        ...

    def call(
        self,
        method: str,
        data: Any = None,
        *,
        meta: dict | None = None,
        repeat: bool | None = None,
        deadline_s: float | None = None,
    ) -> Any: ...

    def prepare(self, method: str, data: Any, meta: dict | None = None) -> rpc.Prepared: ...

    def wait_connected(self, timeout_s: float | None = None) -> bool: ...

    def stats(self) -> dict[str, float]: ...

    def close(self) -> None: ...


Handler = Callable[[Any, dict], Any]  # of data and metadata; returns data or an `rpc.Reply`


class Peers(NamedTuple):
    """Whom the actor and the learner send to."""

    replay: Caller
    logger: Caller


def serve(options: RoleOptions, role: str, methods: Mapping[str, Handler], reception: Reception) -> rpc.Server:
    """A server, not yet started, that answers to the methods at the role's address."""
    server = rpc.make_server(
        _find_address(options, role),
        role,
        transport=options.transport,
        protocol=VERSION,
        key_file=key_file(options),
        plain_handshake=options.portal_plain_handshake,
    )
    for method, handle in {HELLO: reception.welcome, **methods}.items():
        server.bind(method, handle, takes_meta=True)
    return server


def _find_address(options: RoleOptions, role: str) -> str:
    """Where a role listens; refuses an address that is still to be filled in, as nobody would find it."""
    addr = options.address(role)
    if AUTO in addr:
        reason = "is filled in only for roles that a launcher starts together"
        raise ConfigError(f"{role}_addr", addr, reason, "name one that all roles are given: ipc:/path or host:port")
    return addr


def connect(
    options: RoleOptions,
    role: str,
    name: str,
    *,
    me: str,
    facts: Callable[[], dict[str, Any]] = dict,
    ends: bool = False,
    max_inflight: int = 16,
    threaded: bool = True,
    is_quiet: bool = False,
) -> rpc.Client:
    """A client of the role, called `name` on the other side, to which it presents itself as the role `me`.

    `facts` are further fields of its hello; with `ends`, all calls fail for good once the other side has refused it.
    One that `is_quiet` logs nothing of its connection.
    """
    session = uuid.uuid4().hex
    introduction = Introduction(lambda: make_hello(options, me, session=session, **facts()), ends=ends)
    client = rpc.make_client(
        _find_address(options, role),
        name,
        peer=role,
        transport=options.transport,
        protocol=VERSION,
        key_file=key_file(options),
        plain_handshake=options.portal_plain_handshake,
        max_inflight=max_inflight,
        threaded=threaded,
        greeting=introduction,
        repeated=SENT_AGAIN,
        is_quiet=is_quiet,
    )
    client.session = session
    return client


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
