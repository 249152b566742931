"""Names and values as a user writes them, turned into keys and values of options, or refused with a reason."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from dreamfleet.base.hints import choose_from, nearest
from dreamfleet.errors import ConfigError, UnknownOption
from dreamfleet.options.fields import Option

BOOLS = {"true": True, "1": True, "false": False, "0": False}


def parse_words(words: Sequence[str]) -> dict[str, list[str]]:
    """Splits `--key value ...` and `--key=value` into the words behind each key; the last use of a key counts."""
    result: dict[str, list[str]] = {}
    values: list[str] | None = None
    for word in words:
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            values = result[name] = [value] if has_value else []
        elif values is None:
            reason, remedy = "has no option in front of it", f"write --KEY VALUE, as in --task {word}"
            raise ConfigError("argument", word, reason, remedy)
        else:
            values.append(word)
    return result


def find_option(
    name: str, value: object, options: Mapping[str, Option], flags: Iterable[str] = (), dashes: str = ""
) -> Option:
    """The option that `name` stands for; `flags` are further names to suggest when there is none."""
    key = name.replace("-", "_")
    shorts = {option.rule.short: option for option in options.values() if option.rule.short}
    if found := options.get(key) or shorts.get(key):
        return found
    inside = [other for other in options if other.startswith(f"{key}.")]
    near = " or ".join(dashes + other for other in nearest(key, [*options, *flags]))
    if inside:
        remedy = f"set one of its options, such as {dashes}{inside[0]}" + (f", or did you mean {near}?" if near else "")
        raise ConfigError(dashes + name, _shown(value), "is a section, not an option", remedy)
    remedy = f"did you mean {near}?" if near else "`dreamfleet train --help` lists all options"
    raise UnknownOption(dashes + name, _shown(value), remedy)


def parse_value(option: Option, value: Any) -> Any:
    """Converts `value` (a word, a list of words or a Python value) to the type of the option, and checks its range."""
    words = list(value) if isinstance(value, (list, tuple)) else [value]
    if option.is_list:
        words = [part.strip() for word in words for part in (word.split(",") if isinstance(word, str) else [word])]
        words = [word for word in words if word != ""]
        if not words:
            remedy = f"give at least one, such as {option.default[0]}"
            raise ConfigError(option.key, _shown(value), "is an empty list", remedy)
        return tuple(_parse_one(option, word) for word in words)
    if not words:
        example = "VALUE" if option.default == "" else option.default
        raise ConfigError(option.key, "", "has no value", f"write it behind the option, as in --{option.key} {example}")
    if len(words) > 1:
        reason = f"has {len(words)} values but takes one"
        raise ConfigError(option.key, _shown(value), reason, "give one, in quotes if it contains spaces")
    return _parse_one(option, words[0])


def _parse_one(option: Option, value: Any) -> Any:
    parse, reason, example = PARSERS[option.kind]
    try:
        parsed: Any = math.inf if option.rule.can_be_infinite and _is_infinite(value) else parse(value)
    except (TypeError, ValueError, OverflowError, KeyError):
        remedy = f"give {example} (the default is {option.default!r})"
        raise ConfigError(option.key, value, reason, remedy) from None
    if option.choices and parsed not in option.choices:
        raise ConfigError(option.key, value, "is unknown", choose_from(parsed, option.choices))
    if option.kind in (int, float) and (violation := option.rule.violation(parsed)):
        raise ConfigError(option.key, parsed, violation, f"the default is {option.default!r}")
    return parsed


def _is_infinite(value: Any) -> bool:
    return not isinstance(value, bool) and float(value) == math.inf


def _parse_bool(value: Any) -> bool:
    return value if isinstance(value, bool) else BOOLS[str(value).lower()]


def _parse_int(value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    number = _parse_float(value)
    if number != int(number):
        raise ValueError(value)
    return value if isinstance(value, int) else int(number)


def _parse_float(value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(float(value)):
        raise ValueError(value)
    return float(value)


def _parse_str(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, PurePath)):
        raise TypeError(value)
    return str(value)


# By the type of an option: how a value is read, and what to say where it cannot be.
PARSERS: dict[type, tuple[Any, str, str]] = {
    bool: (_parse_bool, "is neither True nor False", "True or False"),
    int: (_parse_int, "is not a whole number", "one, such as 8 or 1e4"),
    float: (_parse_float, "is not a finite number", "one, such as 0.5 or 1e4"),
    str: (_parse_str, "is not text", "a word"),
}


def _shown(value: object) -> object:
    """Words as the user typed them."""
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
