"""The contracts between the one client, the one server, and the engines that carry their messages.

A client engine reports to the `Calls` that it was made with, a server engine to its `Server`. Each of `local/`, `zmq/`
and `portal/` is one of both.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from dreamfleet.errors import RpcError

if TYPE_CHECKING:
    from dreamfleet.rpc.calls import Future
    from dreamfleet.rpc.messages import Answer, Request


class CallEncoder(Protocol):
    """Turns calls into what a client engine sends; raises `TypeError` for data that cannot travel."""

    def encode(self, number: int, method: str, data: Any, meta: dict[str, Any] | None) -> Any: ...

    def prepare(self, method: str, data: Any, meta: dict[str, Any] | None) -> tuple[Callable[[int], Any], Any]:
        """A function from the number of a call to what is sent for it, and the data that it takes the contents of."""
        ...


class Greeting(Protocol):
    """What a client says first over every connection; calls follow when the answer was accepted."""

    method: str

    def present(self) -> dict[str, Any]:
        """The data to send."""
        ...

    def accept(self, answer: Any) -> None:
        """Takes the data of the answer; raises `RpcError` if it is not from whom the client wants to talk to."""
        ...

    def is_final(self, error: RpcError) -> bool:
        """Whether an error in answer ends the client; else it greets again after a while."""
        ...


class ClientEngine(Protocol):
    """Carries calls to one server and connects again by itself, in a thread of its own."""

    @property
    def encoder(self) -> CallEncoder: ...

    def submit(self, future: "Future") -> None:
        """Sends a call that is in flight, or keeps it until there is a connection."""
        ...

    def close(self) -> None: ...


class InlineClientEngine(ClientEngine, Protocol):
    """A client engine without a thread: whoever waits moves the data."""

    def exchange(self, future: "Future", timeout_s: float) -> bool:
        """Makes a call that is not in flight, if that is possible at once; then it is done, or in flight."""
        ...

    def advance(self) -> None:
        """Takes in what has arrived."""
        ...

    def wait_answer(self, future: "Future", until: float) -> bool: ...

    def wait(self, is_ready: Callable[[], bool], until: float) -> bool: ...


class ServerEngine(Protocol):
    """One thread reads requests, passes them to `Server.dispatch`, and calls `Server.flush` at `next_deadline`."""

    def listen(self) -> None:
        """Returns when clients can connect; raises `ConfigError` where the address cannot be listened on."""
        ...

    def open(self, request: "Request") -> tuple[Any, dict[str, Any]]:
        """Data and metadata of a request; raises `BadRequest` where they cannot be read."""
        ...

    def deliver(self, answers: "list[Answer]") -> None:
        """Sends answers back to where the requests came from; called by any thread."""
        ...

    def wake(self) -> None:
        """Makes the reading thread call `Server.flush`."""
        ...

    def stats(self) -> dict[str, float]: ...

    def close(self) -> None:
        """Ends all connections; answers that were delivered still go out."""
        ...
