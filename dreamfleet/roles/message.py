"""Messages as dataclasses: the type of a field says what it may hold, and is checked where the message is read."""

import functools
import math
import reprlib
import types
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

from dreamfleet.errors import BadRequest

Check = Callable[[Any], Any]  # gives the value in its own type, or raises `Unfit`

_MOST_ITEMS = 1 << 16
MOST = 2**48 - 1  # of whole numbers: more than any run counts, and its product with a batch size fits 64 bits


MOST_S = 1e9  # of times: more than a run takes, and what threads can wait for


class Unfit(ValueError):
    """A value that its field does not take; the message is what was expected instead."""


class Message:
    """Base of frozen dataclasses whose fields are other messages or of the types below, or None.

    A field that was not sent takes its default, so that a peer that sends no metadata is served with the defaults.
    """

    __slots__ = ()

    def to_meta(self) -> dict[str, Any]:
        """The message as a dict of plain values; fields that are None are left out."""
        values = {name: getattr(self, name) for name, _, _ in _checks(type(self))}
        return {k: _plain(v) for k, v in values.items() if v is not None}

    @classmethod
    def from_meta(cls, meta: Any) -> Self:
        """The message in a dict that a peer sent; refuses a field with its value and what was expected."""
        if not isinstance(meta, dict):
            raise BadRequest(f"{cls.__name__} is {reprlib.repr(meta)}, expected a dict")
        values: dict[str, Any] = {}
        for name, check, is_required in _checks(cls):
            if name in meta:
                try:
                    values[name] = check(meta[name])
                except Unfit as error:
                    value = reprlib.repr(meta[name])
                    raise BadRequest(f"'{name}' of {cls.__name__} is {value}, expected {error}") from None
            elif is_required:
                raise BadRequest(f"{cls.__name__} has no '{name}'")
        return cls(**values)

    # The same for what travels as data.
    to_data = to_meta
    from_data = from_meta


def whole(least: int) -> Check:
    """A whole number from `least` on."""

    def check(value: Any) -> int:
        value = _unpacked(value)
        if type(value) is not int or not least <= value <= MOST:
            raise Unfit(f"a whole number from {least} to {MOST}")
        return value

    return check


def text(most: int, least: int = 0) -> Check:
    """Text of `least` to `most` bytes."""

    def check(value: Any) -> str:
        if type(value) is not str or not least <= len(value.encode(errors="replace")) <= most:
            raise Unfit(f"text of {least} to {most} bytes")
        return value

    return check


def _seconds(value: Any) -> float:
    value = _unpacked(value)
    if type(value) not in (int, float) or not 0 <= value <= MOST_S:
        raise Unfit(f"seconds from 0 to {MOST_S:g}")
    return value


def _number(value: Any) -> float:
    value = _unpacked(value)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Unfit("a finite number")
    return value


def _flag(value: Any) -> bool:
    value = _unpacked(value)
    if type(value) is not bool:
        raise Unfit("true or false")
    return value


def texts(most: int) -> Check:
    """Names with texts, of at most `most` characters in all."""

    def check(value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(type(x) is str for pair in value.items() for x in pair):
            raise Unfit("a dict from text to text")
        if sum(len(x) for pair in value.items() for x in pair) > most:
            raise Unfit(f"at most {most} characters in all")
        return value

    return check


def _counts(value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > _MOST_ITEMS:
        raise Unfit(f"a list of at most {_MOST_ITEMS} whole numbers")
    return tuple(map(whole(0), value))


def text_list(most: int, most_bytes: int) -> Check:
    """At most `most` texts of at most `most_bytes`."""

    def check(value: Any) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or len(value) > most:
            raise Unfit(f"a list of at most {most} texts")
        return tuple(map(text(most_bytes), value))

    return check


def items(kind: type[Message], most: int) -> Check:
    """At most `most` messages of a kind."""

    def check(value: Any) -> tuple[Message, ...]:
        if not isinstance(value, (list, tuple)) or len(value) > most:
            raise Unfit(f"a list of at most {most} {kind.__name__}")
        return tuple(_element(kind, item) for item in value)

    return check


def table(kind: type[Message], most: int, most_bytes: int = 64) -> Check:
    """At most `most` messages of a kind, by a name of at most `most_bytes`."""
    check_name = text(most_bytes, least=1)

    def check(value: Any) -> dict[str, Message]:
        if not isinstance(value, dict) or len(value) > most:
            raise Unfit(f"a dict of at most {most} {kind.__name__}")
        return {check_name(name): _element(kind, item) for name, item in value.items()}

    return check


def _element(kind: type[Message], value: Any) -> Message:
    try:
        return kind.from_meta(value)
    except BadRequest as error:
        raise Unfit(f"a {kind.__name__} in it: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_meta()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


Count = Annotated[int, whole(0)]
Counts = Annotated[tuple[int, ...], _counts]
Flag = Annotated[bool, _flag]
Name = Annotated[str, text(64)]
Number = Annotated[float, _number]
Seconds = Annotated[float, _seconds]
Texts = Annotated[dict[str, str], texts(1 << 18)]  # spaces of thousands of keys
Paths = Annotated[dict[str, str], texts(1 << 26)]


@functools.cache
def _checks(cls: type) -> tuple[tuple[str, Check, bool], ...]:
    """Every field of a message with its check, and whether it has to be sent."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple((field.name, _check_of(hints[field.name]), _is_required(field)) for field in fields(cls))


def _is_required(field: Field) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _check_of(hint: Any) -> Check:
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    return hint.from_meta if isinstance(hint, type) else get_args(hint)[1]


def _unpacked(value: Any) -> Any:
    """A number as itself: portal carries numbers as arrays without dimensions."""
    return value.item() if isinstance(value, (np.ndarray, np.generic)) and not value.ndim else value
