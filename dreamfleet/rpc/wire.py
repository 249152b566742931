"""A message between our own processes: the buffers of the codec, behind an envelope of fixed layout."""

import functools
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dreamfleet.errors import BadRequest
from dreamfleet.rpc import codec
from dreamfleet.rpc.messages import Failure, Reply, Request, refuse_version

if TYPE_CHECKING:
    from dreamfleet.rpc.server import Server

VERSION = 4  # of the format of messages, as this file, the codec and the engines define it
MAX_REPLY_BYTES = 1 << 40  # the server limits its replies
ENGINE_LIMIT = codec.MAX_BYTES + (1 << 20)  # larger messages end the connection; smaller ones get an answer
SEND_QUEUE = 4096  # answers that wait for one client to read them
REQUEST, REPLY, REFUSAL, ERROR, OVER = range(5)

# Version of the format, kind of message, protocol of the application, length of the method, number of the call.
_ENVELOPE = struct.Struct("<BBBHQ")
_NUMBER = struct.Struct("<Q")


class RequestEncoder:
    """Turns the calls of a client that speaks `protocol` into frames."""

    def __init__(self, protocol: int):
        assert 0 <= protocol < 256, protocol
        self._protocol = protocol

    def encode(self, number: int, method: str, data: Any, meta: dict[str, Any] | None) -> list[codec.Buffer]:
        """Frames of a request."""
        return _checked(_encode(meta, data, self._envelope(number, method)))

    def prepare(
        self, method: str, data: Any, meta: dict[str, Any] | None
    ) -> tuple[Callable[[int], list[codec.Buffer]], Any]:
        """Frames that are sent again and again, and the data over their memory: what is written to it is sent."""
        frames, (_, data) = _encode(meta, data, self._envelope(0, method), codec.prepare)
        return functools.partial(_with_number, _checked(frames)), data

    def _envelope(self, number: int, method: str) -> bytes:
        name = method.encode()
        return _ENVELOPE.pack(VERSION, REQUEST, self._protocol, len(name), number) + name


class ServerWire:
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
            envelope = read_envelope(memoryview(frames[0] if frames else b""))
            version, kind, protocol, number, request.method, start = envelope
            request.origin, request.payload = (client, number), (frames, start)
            if version != VERSION:
                raise refuse_version("wire format", version, self._server.name, VERSION)
            if kind != REQUEST:
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
        return decode_payload(frames, self.max_bytes, start)

    def encode(self, request: Request, answer: Any) -> list[codec.Buffer]:
        """Frames of an answer, or of the error that it cannot be sent."""
        number = request.origin[1]
        try:
            frames = encode_answer(number, answer)
            if (size := sum(map(len, frames))) > self.max_bytes:
                raise ValueError(f"the reply has {size} bytes, above the limit of {self.max_bytes}")
        except Exception as error:
            return encode_answer(number, self._server.make_failure(request, error))
        return frames

    def drop_reply(self, *, is_stuck: bool) -> None:
        """Counts an answer to a client that is gone, or has stopped to read its answers."""
        self._server.counters.add("dropped_replies")
        if is_stuck:
            self._server.log.warning("send", "dropped a reply to a client that does not read")


def encode_answer(number: int, answer: Any) -> list[codec.Buffer]:
    """Frames of an answer (data, a Reply or a Failure); raises `TypeError` for data that cannot be sent."""
    if isinstance(answer, Failure):
        kind = REFUSAL if answer.is_refusal else OVER if answer.is_over else ERROR
        fields = (answer.role, answer.method, answer.summary, answer.traceback)
        return codec.encode(fields, _ENVELOPE.pack(VERSION, kind, 0, 0, number))
    meta, data = (answer.meta, answer.data) if isinstance(answer, Reply) else (None, answer)
    return _encode(meta, data, _ENVELOPE.pack(VERSION, REPLY, 0, 0, number))


def read_envelope(frame: codec.Buffer) -> tuple[int, int, int, int, str, int]:
    """Version, kind, protocol, number, method and size of the envelope; raises `BadRequest` where there is none."""
    try:
        version, kind, protocol, length, number = _ENVELOPE.unpack_from(frame)
        size = _ENVELOPE.size + length
        if size <= len(frame):
            return version, kind, protocol, number, str(frame[_ENVELOPE.size : size], "utf-8"), size
    except (struct.error, UnicodeDecodeError):
        pass
    raise BadRequest("the message does not start with an envelope")


def decode_payload(frames: list[codec.Buffer], max_bytes: int, start: int) -> tuple[Any, dict[str, Any]]:
    """Data and metadata of a request or reply."""
    payload = codec.decode(frames, max_bytes, start)
    if not isinstance(payload, list) or len(payload) != 2 or not isinstance(payload[0], (dict, type(None))):
        raise BadRequest("the message is not a pair of metadata and data")
    meta, data = payload
    return data, meta or {}


def read_answer(frames: list[codec.Buffer]) -> tuple[int, Reply | Failure | BadRequest]:
    """The number of the call and what came of it, which for an answer that cannot be read is `BadRequest`."""
    number = -1
    try:
        _, kind, _, number, _, start = read_envelope(memoryview(frames[0]))
        return number, _decode_answer(kind, frames, start)
    except BadRequest as error:
        return number, error


def _decode_answer(kind: int, frames: list[codec.Buffer], start: int) -> Reply | Failure:
    if kind == REPLY:
        return Reply(*decode_payload(frames, MAX_REPLY_BYTES, start))
    fields = codec.decode(frames, MAX_REPLY_BYTES, start)
    if kind not in (REFUSAL, ERROR, OVER) or not isinstance(fields, list) or [*map(type, fields)] != [str] * 4:
        raise BadRequest("the answer is malformed")
    return Failure(*fields, is_refusal=kind == REFUSAL, is_over=kind == OVER)


def _with_number(frames: list[codec.Buffer], number: int) -> list[codec.Buffer]:
    """Makes a request that was prepared the call of this number."""
    _NUMBER.pack_into(frames[0], _ENVELOPE.size - _NUMBER.size, number)
    return frames


def _encode(meta: dict[str, Any] | None, data: Any, envelope: bytes, encode: Callable = codec.encode) -> Any:
    try:
        return encode((meta, data), envelope)
    except TypeError:
        codec.encode(data)  # for an error that has the key path as the caller knows it
        codec.encode({"meta": meta})
        raise


def _checked(frames: list[codec.Buffer]) -> list[codec.Buffer]:
    if (size := sum(map(len, frames))) > codec.MAX_BYTES:
        raise BadRequest(f"a message of {size} bytes is above the limit of {codec.MAX_BYTES}")
    return frames
