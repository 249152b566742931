"""How an option is declared: one field of a section, with its default, help, range and whether it may change later.

Everything else about options (command line, help, checks, saved files, docs) is read from these declarations.
"""

import dataclasses
import functools
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

T = TypeVar("T")

_RULE = "dreamfleet"


@dataclasses.dataclass(frozen=True)
class Rule:
    """What is known of an option beside its type and default."""

    help: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    multiple_of: int | None = None
    can_be_infinite: bool = False
    can_change: bool = False  # when a run is resumed: neither its data nor its parameters depend on it
    short: str = ""  # a second name on the command line
    before: Any = None  # what versions without the option did, where that is not its default

    def violation(self, number: float) -> str:
        """What a number breaks, in words; empty if nothing."""
        low = self.above is None or number > self.above
        low = low and (self.at_least is None or number >= self.at_least)
        high = self.at_most is None or number <= self.at_most
        whole = self.multiple_of is None or not number % self.multiple_of
        return "" if low and high and whole else f"must be {self.range()}"

    def range(self) -> str:
        """The numbers that are allowed, in words; empty if all are."""
        steps = f"a multiple of {self.multiple_of} " if self.multiple_of else ""
        least = self.at_least if self.above is None else self.above
        if least is not None and self.at_most is not None:
            return f"{steps}in {'[' if self.above is None else '('}{least:g}, {self.at_most:g}]"
        if least is not None:
            return f"{steps}{'at least' if self.above is None else 'above'} {least:g}"
        return f"{steps}at most {self.at_most:g}" if self.at_most is not None else steps.strip()


class Option(NamedTuple):
    """One option as the rest of the package sees it; `kind` is the type of one value."""

    key: str  # dotted
    default: Any
    kind: type
    choices: tuple[str, ...]  # empty: any
    is_list: bool
    rule: Rule

    def default_before(self) -> Any:
        """What versions without the option did."""
        return self.default if self.rule.before is None else self.rule.before


def option(
    default: T,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    multiple_of: int | None = None,
    can_be_infinite: bool = False,
    can_change: bool = False,
    short: str = "",
    before: T | None = None,
) -> T:
    """Declares an option; its type is the annotation of the field, where `Literal` lists the choices."""
    rule = Rule(help, at_least, above, at_most, multiple_of, can_be_infinite, can_change, short, before)
    return dataclasses.field(default=default, metadata={_RULE: rule})


def show_value(value: Any) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def section(options: type[T]) -> T:
    """Declares a field that is a section of options itself."""
    return dataclasses.field(default_factory=options)


@functools.cache
def find_options(options: type, prefix: str = "") -> dict[str, Option]:
    """All options of a section and the sections in it, by dotted key, in the order of their declaration."""
    return {field.key: field for field in _walk(options, prefix)}


def flatten(options: Any) -> dict[str, Any]:
    """The values of a section by dotted key."""

    def read(key: str) -> Any:
        return functools.reduce(getattr, key.split("."), options)

    return {key: read(key) for key in find_options(type(options))}


def build(options: type[T], flat: Mapping[str, Any], prefix: str = "") -> T:
    """The inverse of `flatten`, for values that were checked."""
    hints, values = typing.get_type_hints(options), {}
    for field in dataclasses.fields(options):  # pyright: ignore[reportArgumentType]
        key = prefix + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            values[field.name] = build(hints[field.name], flat, f"{key}.")
        elif key in flat:
            values[field.name] = flat[key]
    return options(**values)


def _walk(options: type, prefix: str) -> Iterator[Option]:
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        hint, key = hints[field.name], prefix + field.name
        if dataclasses.is_dataclass(hint):
            yield from find_options(typing.cast(type, hint), f"{key}.").values()
        elif _RULE in field.metadata:  # else it is a fact about the run that no user sets
            is_list = get_origin(hint) is tuple
            one = get_args(hint)[0] if is_list else hint
            choices = get_args(one) if get_origin(one) is Literal else ()
            yield Option(key, field.default, str if choices else one, choices, is_list, field.metadata[_RULE])
