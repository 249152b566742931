"""A message between our own processes: the buffers of the codec, behind an envelope of fixed layout."""

import struct
from collections.abc import Callable
from typing import Any

from dreamfleet.errors import BadRequest
from dreamfleet.rpc import codec
from dreamfleet.rpc.messages import Failure, Reply

VERSION = 1
REQUEST, REPLY, REFUSAL, ERROR = range(4)

_ENVELOPE = struct.Struct("<BBHQ")  # protocol version, kind of message, length of the method, number of the call
_NUMBER = struct.Struct("<Q")


def encode_request(number: int, method: str, data: Any, meta: dict[str, Any] | None) -> list[codec.Buffer]:
    """Frames of a request; raises `TypeError` for data that cannot be sent."""
    return _encode(meta, data, _request_envelope(number, method))


def prepare_request(method: str, data: Any, meta: dict[str, Any] | None) -> tuple[list[codec.Buffer], Any]:
    """Frames of a request to be sent again and again, and its data: what is written to its arrays is in the frames."""
    frames, (_, data) = _encode(meta, data, _request_envelope(0, method), codec.prepare)
    return frames, data


def set_number(frames: list[codec.Buffer], number: int) -> None:
    """Makes a request that was prepared the call of this number."""
    _NUMBER.pack_into(frames[0], _ENVELOPE.size - _NUMBER.size, number)


def encode_answer(number: int, answer: Any) -> list[codec.Buffer]:
    """Frames of an answer (data, a Reply or a Failure); raises `TypeError` for data that cannot be sent."""
    if isinstance(answer, Failure):
        kind = REFUSAL if answer.is_refusal else ERROR
        fields = (answer.role, answer.method, answer.summary, answer.traceback)
        return codec.encode(fields, _ENVELOPE.pack(VERSION, kind, 0, number))
    meta, data = (answer.meta, answer.data) if isinstance(answer, Reply) else (None, answer)
    return _encode(meta, data, _ENVELOPE.pack(VERSION, REPLY, 0, number))


def read_envelope(frame: codec.Buffer) -> tuple[int, int, int, str, int]:
    """Version, kind, number, method and size of the envelope; raises `BadRequest` where there is none."""
    try:
        version, kind, length, number = _ENVELOPE.unpack_from(frame)
        size = _ENVELOPE.size + length
        if size <= len(frame):
            return version, kind, number, str(frame[_ENVELOPE.size : size], "utf-8"), size
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


def decode_answer(kind: int, frames: list[codec.Buffer], max_bytes: int, start: int) -> Reply | Failure:
    """Inverse of `encode_answer`; raises `BadRequest` for anything else."""
    if kind == REPLY:
        return Reply(*decode_payload(frames, max_bytes, start))
    fields = codec.decode(frames, max_bytes, start)
    if kind not in (REFUSAL, ERROR) or not isinstance(fields, list) or [*map(type, fields)] != [str] * 4:
        raise BadRequest("the answer is malformed")
    return Failure(*fields, is_refusal=kind == REFUSAL)


def _request_envelope(number: int, method: str) -> bytes:
    name = method.encode()
    return _ENVELOPE.pack(VERSION, REQUEST, len(name), number) + name


def _encode(meta: dict[str, Any] | None, data: Any, envelope: bytes, encode: Callable = codec.encode) -> Any:
    try:
        return encode((meta, data), envelope)
    except TypeError:
        codec.encode(data)  # for an error that has the key path as the caller knows it
        codec.encode({"meta": meta})
        raise
