"""What the clients that speak our own messages share."""

from typing import Any

from dreamfleet.errors import BadRequest
from dreamfleet.rpc import codec, wire
from dreamfleet.rpc.client import Client

MAX_REPLY_BYTES = 1 << 40  # the server limits its replies


class WireClient(Client):
    """Calls as messages of `wire`, however they travel."""

    def _encode(self, number: int, method: str, data: Any, meta: dict[str, Any] | None) -> list[codec.Buffer]:
        frames = wire.encode_request(number, method, data, meta)
        if (size := sum(map(len, frames))) > codec.MAX_BYTES:
            raise BadRequest(f"a message of {size} bytes is above the limit of {codec.MAX_BYTES}")
        return frames

    def _read_answer(self, frames: list[Any]) -> None:
        self._bytes_in += sum(map(len, frames))
        number = -1
        try:
            _, kind, number, _, start = wire.read_envelope(memoryview(frames[0]))
            outcome = wire.decode_answer(kind, frames, MAX_REPLY_BYTES, start)
        except BadRequest as error:
            outcome = error
            self._limited_log.warning("answer", f"{self.peer} sent an answer that cannot be read: {error}")
        self._finish(number, outcome)
