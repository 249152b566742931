"""What a user types, one module a sub-command; `dreamfleet.cli` calls them.

Each has FLAGS (its own options, as opposed to those of the config), `add_arguments(parser)` and
`run(args, words) -> exit code`, where `words` are what the parser left over for the config.
"""

from collections.abc import Iterable

from dreamfleet.base.hints import did_you_mean
from dreamfleet.errors import ConfigError


def refuse_words(words: list[str], command: str, flags: Iterable[str]) -> None:
    """For commands that take no options of the config: raises ConfigError if anything is left over."""
    if words:
        name = words[0].partition("=")[0]
        remedy = did_you_mean(name, [f"--{flag}" for flag in flags], f"see dreamfleet {command} --help")
        raise ConfigError("argument", words[0], "is unknown", remedy)
