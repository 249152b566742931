"""Names and values as a user writes them, turned into keys and values of a config, or refused with a reason."""

import math
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from dreamfleet.base.hints import nearest
from dreamfleet.errors import ConfigError

ALIASES = {
    "steps": "run.steps",
    "duration": "run.duration",
    "envs": "run.envs",
    "eval_envs": "run.eval_envs",
}
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
            raise ConfigError(
                "argument", word, "has no option in front of it", f"write --KEY VALUE, as in --task {word}"
            )
        else:
            values.append(word)
    return result


def resolve_key(name: str, value: object, keys: Iterable[str], flags: Iterable[str] = ()) -> str:
    """The key that `name` stands for; `flags` are further names to suggest when there is none."""
    key = name.replace("-", "_")
    key = ALIASES.get(key, key)
    keys = list(keys)
    if key in keys:
        return key
    inside = [other for other in keys if other.startswith(f"{key}.")]
    near = nearest(key, [*keys, *flags])
    if inside:
        reason, remedy = "names a section, not an option", f"set one of its options, such as {inside[0]}"
        remedy += f", or did you mean {' or '.join(near)}?" if near else ""
    else:
        reason = "is an unknown option"
        remedy = f"did you mean {' or '.join(near)}?" if near else "`dreamfleet train --help` lists all options"
    raise ConfigError(name, _shown(value), reason, remedy)


def parse_value(key: str, value: Any, default: Any) -> Any:
    """Converts `value`, a word, a list of words or a YAML value, to the type of `default`."""
    words = list(value) if isinstance(value, (list, tuple)) else [value]
    if isinstance(default, tuple):
        words = [part.strip() for word in words for part in (word.split(",") if isinstance(word, str) else [word])]
        words = [word for word in words if word != ""]
        if not words:
            raise ConfigError(key, _shown(value), "is an empty list", f"give at least one, such as {default[0]}")
        return tuple(_parse_scalar(key, word, default[0]) for word in words)
    example = "''" if default == "" else default
    if not words:
        raise ConfigError(key, "", "has no value", f"write it behind the option, as in --{key} {example}")
    if len(words) > 1:
        raise ConfigError(
            key, _shown(value), f"has {len(words)} values but takes one", "give one, in quotes if need be"
        )
    return _parse_scalar(key, words[0], default)


def _parse_scalar(key: str, value: Any, default: Any) -> Any:
    parse, kind, example = {
        bool: (_parse_bool, "neither True nor False", "True or False"),
        int: (_parse_int, "not a whole number", "one, such as 8 or 1e4"),
        float: (_parse_float, "not a finite number", "one, such as 0.5 or 1e4"),
        str: (_parse_str, "not a text", "a word"),
    }[type(default)]
    try:
        return parse(value)
    except (TypeError, ValueError, OverflowError, KeyError):
        raise ConfigError(key, value, f"is {kind}", f"give {example} (the default is {default!r})") from None


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


def _shown(value: object) -> object:
    """Words as the user typed them."""
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
