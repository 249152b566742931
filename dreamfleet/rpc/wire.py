"""The frames of a message between our own processes: an envelope of fixed layout, then the frames of the codec."""

import struct
from typing import Any

from dreamfleet.errors import BadRequest
from dreamfleet.rpc import codec
from dreamfleet.rpc.messages import Failure, Reply

VERSION = 1
REQUEST, REPLY, REFUSAL, ERROR = range(4)

_ENVELOPE = struct.Struct("<BBQ")  # protocol version, kind of message, number of the call; a request's method follows


def pack_request(number: int, method: str) -> bytes:
    return _ENVELOPE.pack(VERSION, REQUEST, number) + method.encode()


def pack_answer(number: int, kind: int) -> bytes:
    return _ENVELOPE.pack(VERSION, kind, number)


def unpack_envelope(envelope: bytes) -> tuple[int, int, int, str]:
    """Version, kind, number and method; raises `BadRequest` if it is not an envelope of any version."""
    try:
        version, kind, number = _ENVELOPE.unpack_from(envelope)
        return version, kind, number, envelope[_ENVELOPE.size :].decode()
    except (struct.error, UnicodeDecodeError):
        raise BadRequest("the message does not start with an envelope") from None


def encode_answer(number: int, answer: Reply | Failure) -> list[codec.Buffer]:
    """Frames of an answer; raises `TypeError` for data that cannot be sent."""
    if isinstance(answer, Reply):
        return [pack_answer(number, REPLY), *codec.encode((answer.meta, answer.data))]
    if answer.is_refusal:
        return [pack_answer(number, REFUSAL), *codec.encode((answer.role, answer.method, answer.summary))]
    fields = (answer.role, answer.method, answer.summary, answer.traceback)
    return [pack_answer(number, ERROR), *codec.encode(fields)]


def decode_answer(kind: int, frames: list[codec.Buffer], max_bytes: int) -> Reply | Failure:
    """Inverse of `encode_answer`; raises `BadRequest` for anything else."""
    fields = codec.decode(frames, max_bytes)
    if kind == REPLY:
        data, meta = split_payload(fields)
        return Reply(data, meta)
    if kind not in (REFUSAL, ERROR) or not isinstance(fields, list) or not all(isinstance(x, str) for x in fields):
        raise BadRequest("the answer is malformed")
    return Failure(*fields, is_refusal=kind == REFUSAL)


def split_payload(payload: Any) -> tuple[Any, dict[str, Any]]:
    """Data and metadata from the tree that a message carries."""
    if not isinstance(payload, list) or len(payload) != 2 or not isinstance(payload[0], (dict, type(None))):
        raise BadRequest("the message is not a pair of metadata and data")
    meta, data = payload
    return data, meta or {}
