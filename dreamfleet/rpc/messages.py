"""What moves through a server: requests, replies and failures, independent of the engine that carries them."""

import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from dreamfleet.errors import BadRequest, Closed, RemoteError, RpcError, RunOver


@dataclass(slots=True)
class Reply:
    """What a handler returns when it wants to send metadata beside its data."""

    data: Any
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Failure:
    """An error on its way to the caller; only where a handler failed is there a traceback."""

    role: str
    method: str
    summary: str
    traceback: str = ""
    is_refusal: bool = False
    is_over: bool = False
    is_closing: bool = False  # the server is; whoever calls again finds the next one

    @classmethod
    def from_error(cls, role: str, method: str, error: BaseException) -> "Failure":
        if isinstance(error, BadRequest):
            return cls(role, method, str(error), is_refusal=True)
        if isinstance(error, RunOver):
            return cls(role, method, str(error), is_over=True)
        lines = traceback.format_exception(error)
        summary, is_closing = f"{type(error).__name__}: {error}", isinstance(error, Closed)
        return cls(role, method, summary, "".join(lines).rstrip(), is_closing=is_closing)

    def to_error(self) -> RpcError:
        """The exception that the caller gets to see."""
        if self.is_refusal:
            return BadRequest(f"{self.role}.{self.method} refused the request: {self.summary}")
        if self.is_over:
            return RunOver(self.summary)
        return RemoteError(self.role, self.method, self.summary, self.traceback)


def is_left(answer: Any) -> bool:
    """Whether an answer is none, as the server is stopping: the call is lost with the connection, like at a death."""
    return isinstance(answer, Failure) and answer.is_closing


class Request:
    """One call inside a server; `origin` and `payload` belong to the engine."""

    __slots__ = ("arrived", "method", "origin", "payload")

    def __init__(self, method: str, origin: Any, payload: Any):
        self.method, self.origin, self.payload = method, origin, payload
        self.arrived = time.monotonic()


def refuse_version(what: str, theirs: int, role: str, ours: int) -> BadRequest:
    """The refusal of a caller that speaks another version than the server, the role `role`."""
    remedy = "install the same version of dreamfleet on both"
    return BadRequest(f"the caller speaks {what} {theirs}, this {role} speaks {what} {ours}: {remedy}")


Answer = tuple[Request, Any]  # data, a Reply or a Failure
