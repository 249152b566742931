"""Trees as the portal library carries them: metadata under a reserved key, errors as text."""

import re
from typing import Any

import numpy as np

from dreamfleet.errors import BadRequest, RpcError
from dreamfleet.rpc import codec
from dreamfleet.rpc.messages import Failure

META = "_meta"
_NONE = "_none"  # in the metadata of a message whose data is None, because something has to carry the metadata
_PROTOCOL = "_protocol"  # in the metadata of a request: the version that its caller speaks
_SEPARATOR = "\n--- traceback ---\n"
_ERROR = re.compile(r"\[(refused|failed|over) ([^\s.]*)\.(\S*)\] (.*)", re.DOTALL)


def prepare(value: Any) -> Any:
    """The tree with contiguous arrays; raises `TypeError` with the key path for what cannot be sent."""
    try:
        return _prepare(value, "")
    except RecursionError:
        raise TypeError("cannot send the data: it is nested too deeply or contains itself") from None


def _prepare(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"cannot send {path or 'the data'}: key {key!r} is not a string")
        return {key: _prepare(child, f"{path}.{key}" if path else key) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_prepare(child, f"{path}[{index}]") for index, child in enumerate(value)]
    if value is None or isinstance(value, (str, bytes)):
        return value
    if isinstance(value, (bool, int, float, np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.kind in "biufc":
            array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
            return array if array.flags.c_contiguous else array.copy("C")
        raise TypeError(f"cannot send {path or 'the data'}: arrays of dtype {array.dtype} are not supported")
    raise TypeError(f"cannot send {path or 'the data'}: {type(value).__name__} is not an array, number or string")


def restore(value: Any) -> Any:
    """A received tree with writable, aligned arrays of its own."""
    try:
        return _restore(value)
    except RecursionError:
        raise BadRequest("the message is nested too deeply") from None


def _restore(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _restore(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_restore(child) for child in value]
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, np.ndarray):
        return codec.copy_aligned(value)
    return value


def join_meta(data: Any, meta: dict[str, Any] | None) -> Any:
    """Puts metadata beside data that can hold it, which is a dict or nothing."""
    if data is None:
        return {META: {**(meta or {}), _NONE: True}}
    return {**data, META: meta or {}} if isinstance(data, dict) else data


def split_meta(data: Any) -> tuple[Any, dict[str, Any] | None]:
    """Inverse of `join_meta`; the metadata is None where the other side did not send any."""
    if not isinstance(data, dict) or not isinstance(data.get(META), dict):
        return data, None
    data = dict(data)
    meta = data.pop(META)
    is_none = meta.pop(_NONE, None) is not None
    return None if is_none else data, meta


def with_protocol(meta: dict[str, Any] | None, protocol: int) -> dict[str, Any]:
    """Metadata of a request that also says which version of the protocol its caller speaks."""
    return {**(meta or {}), _PROTOCOL: protocol}


def take_protocol(meta: dict[str, Any]) -> int | None:
    """Takes the version of the protocol out of metadata; None where the caller, which need not be ours, names none."""
    protocol = meta.pop(_PROTOCOL, None)
    try:
        return None if protocol is None else int(protocol)
    except (TypeError, ValueError, OverflowError):
        raise BadRequest("the version of the protocol is not a number") from None


def failure_to_text(failure: Failure) -> str:
    kind = "refused" if failure.is_refusal else "over" if failure.is_over else "failed"
    traceback = _SEPARATOR + failure.traceback if failure.traceback else ""
    return f"[{kind} {failure.role}.{failure.method}] {failure.summary}{traceback}"


def text_to_error(text: str, peer: str, method: str, is_refusal: bool) -> RpcError:
    """The error from the text of our own server, or of any other."""
    match = _ERROR.search(text)
    if not match:
        return Failure(peer, method, text, is_refusal=is_refusal).to_error()
    kind, role, method, rest = match.groups()
    summary, _, traceback = rest.partition(_SEPARATOR)
    failure = Failure(role, method, summary, traceback, is_refusal=kind == "refused", is_over=kind == "over")
    return failure.to_error()
