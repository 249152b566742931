"""Help texts, read from the comments in the YAML files; shown by `dreamfleet train --help`."""

import re
import shutil
import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from dreamfleet.options.load import DEFAULTS, PRESETS
from dreamfleet.options.values import ALIASES

LINE = re.compile(r"(?P<indent> *)(?P<name>[\w.]+):(?: +(?P<value>[^#\s].*?))?(?: +# (?P<meaning>.*))?")


class Option(NamedTuple):
    """One line of a YAML file: its dotted key, the value as written there, and the comment behind it."""

    key: str
    value: str
    meaning: str


def option_help(width: int | None = None) -> str:
    """Every option with its default and meaning, by section, followed by the presets."""
    width = width or shutil.get_terminal_size().columns
    blocks = []
    options = [option for option in read_options(DEFAULTS) if option.value]
    for section, group in groupby(options, _section):
        rows = [(f"--{option.key}", option.value, _with_alias(option)) for option in group]
        blocks.append(f"{section} options (default, meaning):\n{_table(rows, width)}")
    presets = [(name, meaning) for name, _, meaning in read_options(PRESETS) if "." not in name]
    blocks.append(f"presets:\n{_table(presets, width)}")
    return "\n\n".join(blocks)


def read_options(path: Path) -> list[Option]:
    """The lines of a YAML file of nested mappings; a section is an option without a value."""
    return list(_parse(path.read_text()))


def _parse(text: str) -> Iterator[Option]:
    parents: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        if not match:
            continue
        indent = len(match["indent"])
        parents = [parent for parent in parents if parent[0] < indent] + [(indent, match["name"])]
        yield Option(".".join(name for _, name in parents), match["value"] or "", match["meaning"] or "")


def _section(option: Option) -> str:
    return option.key.split(".")[0] if "." in option.key else "main"


def _with_alias(option: Option) -> str:
    short = [alias for alias, key in ALIASES.items() if key == option.key]
    return option.meaning + (f" (short: --{short[0].replace('_', '-')})" if short else "")


def _table(rows: list, width: int) -> str:
    """Aligns all columns; the last one is wrapped to what is left of `width`."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        start = "  " + "".join(cell.ljust(size + 2) for cell, size in zip(row[:-1], widths, strict=True))
        indent = " " * len(start)
        lines += textwrap.wrap(row[-1], max(width, len(start) + 30), initial_indent=start, subsequent_indent=indent)
    return "\n".join(lines)
