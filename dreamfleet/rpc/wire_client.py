"""What the clients that speak our own messages share."""

import math
from typing import Any

from dreamfleet.errors import BadRequest
from dreamfleet.rpc import codec, wire
from dreamfleet.rpc.client import Client, Prepared
from dreamfleet.rpc.future import Future
from dreamfleet.rpc.messages import Failure, Reply

MAX_REPLY_BYTES = 1 << 40  # the server limits its replies


class WireClient(Client):
    """Calls as messages of `wire`, however they travel."""

    def prepare(self, method: str, data: Any, meta: dict[str, Any] | None = None) -> Prepared:
        frames, data = wire.prepare_request(method, data, meta)
        return PreparedFrames(self, method, _checked(frames), data)

    def exchange(self, method: str, frames: list[codec.Buffer], timeout_s: float) -> Any:
        """Makes a call of frames that were prepared; returns the data of its reply."""
        return self._start(self._number(method, frames)).result(timeout_s)

    def _number(self, method: str, frames: list[codec.Buffer]) -> Future:
        number = next(self._numbers)
        wire.set_number(frames, number)
        return Future(self, number, method, frames, repeat=False, deadline=math.inf)

    def _encode(self, number: int, method: str, data: Any, meta: dict[str, Any] | None) -> list[codec.Buffer]:
        return _checked(wire.encode_request(number, method, data, meta))

    def _read_answer(self, frames: list[Any]) -> None:
        self._finish(*self._decode_answer(frames))

    def _decode_answer(self, frames: list[Any]) -> tuple[int, Reply | Failure | BadRequest]:
        """The number of the call, and what came of it."""
        self._bytes_in += sum(map(len, frames))
        number = -1
        try:
            _, kind, number, _, start = wire.read_envelope(memoryview(frames[0]))
            return number, wire.decode_answer(kind, frames, MAX_REPLY_BYTES, start)
        except BadRequest as error:
            self._limited_log.warning("answer", f"{self.peer} sent an answer that cannot be read: {error}")
            return number, error


class PreparedFrames(Prepared):
    """A call whose data are views of the message itself, so that there is nothing left to encode."""

    def __init__(self, client: WireClient, method: str, frames: list[codec.Buffer], data: Any):
        self._client, self._method, self._frames, self.data = client, method, frames, data

    def ask(self, timeout_s: float) -> Any:
        return self._client.exchange(self._method, self._frames, timeout_s)


def _checked(frames: list[codec.Buffer]) -> list[codec.Buffer]:
    if (size := sum(map(len, frames))) > codec.MAX_BYTES:
        raise BadRequest(f"a message of {size} bytes is above the limit of {codec.MAX_BYTES}")
    return frames
