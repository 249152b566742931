"""Every option in words, made from its declaration: `dreamfleet train --help`, and the page `docs/options.md`."""

import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from dreamfleet.options.fields import Option, find_options, show_value
from dreamfleet.options.load import PRESETS, flat_items, load_presets
from dreamfleet.options.root import Options

PAGE = """\
# Options

Every option of `dreamfleet train`, by section, set with `--KEY VALUE` on the command line, by keyword in Python, or by
[presets](presets.md). Options marked `*` may change when a run is resumed; any other change is refused. This page is
made by `make docs` from the declarations in `dreamfleet/options/`."""

TABLE_START, TABLE_END = "<!-- made by `make docs` -->", "<!-- end of the table -->"


def option_help(width: int | None = None, options: type[Options] = Options) -> str:
    """Every option with its default and meaning, by section, followed by the presets."""
    width = width or shutil.get_terminal_size().columns
    blocks = []
    for name, group in _sections(options):
        rows = [(f"--{option.key}", _shown(option.default), _meaning(option)) for option in group]
        blocks.append(f"{name} options (default, meaning):\n{_table(rows, width)}")
    blocks.append(f"presets:\n{_table(list(preset_help().items()), width)}")
    return "\n\n".join(blocks)


def option_page(options: type[Options] = Options) -> str:
    """The same as a page of Markdown."""
    blocks = [PAGE]
    for name, group in _sections(options):
        marks = {True: " *", False: ""}
        rows = [
            f"| `{option.key}`{marks[option.rule.can_change]} | `{_shown(option.default)}` | {_meaning(option)} |"
            for option in group
        ]
        blocks.append("\n".join([f"## {name}", "", "| option | default | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks) + "\n"


def preset_help() -> dict[str, str]:
    """The meaning of each preset, which is the comment behind its name."""
    found = re.findall(r"^(\w+): +# (.*)$", PRESETS.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(found)


def preset_table() -> str:
    """The presets as a table of Markdown, for `docs/presets.md`."""
    rows = []
    for name, values in load_presets().items():
        settings = dict(flat_items(values))
        task = settings.pop("task", None) or settings.pop("default_task", None)
        sets = ", ".join(f"`{key} {show_value(value)}`" for key, value in settings.items())
        rows.append(f"| `{name}` | {preset_help()[name]} | {f'`{task}`' if task else ''} | {sets} |")
    return "\n".join(["| preset | for | default task | sets |", "|---|---|---|---|", *rows])


def write_presets(page: str) -> str:
    """A page with the table of presets between its two marks brought up to date."""
    before, _, rest = page.partition(TABLE_START)
    _, _, after = rest.partition(TABLE_END)
    return f"{before}{TABLE_START}\n\n{preset_table()}\n\n{TABLE_END}{after}"


def _sections(options: type[Options]) -> Iterator[tuple[str, list[Option]]]:
    def section(option: Option) -> str:
        return option.key.split(".")[0] if "." in option.key else "main"

    for name, group in groupby(find_options(options).values(), section):
        yield name, list(group)


def _shown(value: Any) -> str:
    return show_value(value) or "''"


def _meaning(option: Option) -> str:
    """The help of an option with what else its declaration says."""
    missing = [choice for choice in option.choices if not re.search(rf"\b{choice}\b", option.rule.help)]
    choices = f": {', '.join(option.choices)}" if missing else ""
    limits = f", {option.rule.range()}" if option.rule.at_most is not None or option.rule.multiple_of else ""
    short = f" (short: --{option.rule.short.replace('_', '-')})" if option.rule.short else ""
    return option.rule.help + choices + limits + short


def _table(rows: Sequence[tuple[str, ...]], width: int) -> str:
    """Aligns all columns; the last one is wrapped to what is left of `width`."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        start = "  " + "".join(cell.ljust(size + 2) for cell, size in zip(row[:-1], widths, strict=True))
        indent = " " * len(start)
        lines += textwrap.wrap(row[-1], max(width, len(start) + 30), initial_indent=start, subsequent_indent=indent)
    return "\n".join(lines)
