"""Messages of `wire` as the requests of a server, and answers as messages, for the engines that speak them."""

import threading
from typing import TYPE_CHECKING, Any

from dreamfleet.errors import BadRequest
from dreamfleet.rpc import codec, wire
from dreamfleet.rpc.messages import Request, refuse_version

if TYPE_CHECKING:
    from dreamfleet.rpc.server import Server

ENGINE_LIMIT = codec.MAX_BYTES + (1 << 20)  # larger messages end the connection; smaller ones get an answer
SEND_QUEUE = 4096  # answers that wait for one client to read them


class Requests:
    """Reads the requests of a server that speaks `protocol`; the origin of one is its client and its number there."""

    def __init__(self, server: "Server", *, protocol: int, max_message_bytes: int, max_pending: int):
        self._server, self._protocol = server, protocol
        self.max_bytes, self.max_pending = max_message_bytes, max_pending
        self.lock = threading.Lock()  # guards what is counted
        self.pending = 0  # requests read and not answered

    def accept(self, client: Any, frames: list[Any]) -> None:
        """Takes a message of a client as a request, or answers it with an error."""
        self._server.counters.bytes_in += sum(map(len, frames))
        request = Request("", (client, 0), None)
        try:
            envelope = wire.read_envelope(memoryview(frames[0] if frames else b""))
            version, kind, protocol, number, request.method, start = envelope
            request.origin, request.payload = (client, number), (frames, start)
            if version != wire.VERSION:
                raise refuse_version("wire format", version, self._server.name, wire.VERSION)
            if kind != wire.REQUEST:
                raise BadRequest("the message is not a request")
            if protocol != self._protocol:
                raise refuse_version("protocol", protocol, self._server.name, self._protocol)
        except BadRequest as error:
            self._server.engine.deliver([(request, self._server.make_failure(request, error))])
        else:
            self._server.dispatch(request)

    def open(self, request: Request) -> tuple[Any, dict[str, Any]]:
        """Data and metadata of a request."""
        frames, start = request.payload
        return wire.decode_payload(frames, self.max_bytes, start)

    def encode(self, request: Request, answer: Any) -> list[codec.Buffer]:
        """Frames of an answer, or of the error that it cannot be sent."""
        number = request.origin[1]
        try:
            frames = wire.encode_answer(number, answer)
            if (size := sum(map(len, frames))) > self.max_bytes:
                raise ValueError(f"the reply has {size} bytes, above the limit of {self.max_bytes}")
        except Exception as error:
            return wire.encode_answer(number, self._server.make_failure(request, error))
        return frames

    def drop_reply(self, *, is_stuck: bool) -> None:
        """Counts an answer to a client that is gone, or has stopped to read its answers."""
        self._server.counters.add("dropped_replies")
        if is_stuck:
            self._server.log.warning("send", "dropped a reply to a client that does not read")
