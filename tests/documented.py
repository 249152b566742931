"""What the documentation shows: its code, and which metrics `docs/metrics.md` has."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def read_blocks(page: Path, *languages: str) -> list[str]:
    """The code that a page shows in these languages; an empty one stands for blocks without."""
    return [block for language, block in BLOCK.findall(page.read_text()) if language in languages]


def read_rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page."""
    lines = (DOCS / page).read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def read_names(page: str) -> list[str]:
    """What the first columns of the tables of a page have as code."""
    return [name for first, *_ in read_rows(page) for name in re.findall(r"`([^`]+)`", first)]


def find_undocumented(keys: set[str]) -> set[str]:
    """The keys that the page on metrics does not have, nor a pattern for."""
    patterns = [_make_pattern(name) for name in read_names("metrics.md")]
    return {key for key in keys if not any(pattern.fullmatch(key) for pattern in patterns)}


def _make_pattern(name: str) -> re.Pattern:
    """A word in capitals stands for any name; what an environment calls its logs may have several parts."""
    anything = {"NAME": ".+"}
    parts = [anything.get(part, "[^/]+") if part.isupper() else re.escape(part) for part in name.split("/")]
    return re.compile("/".join(parts))
