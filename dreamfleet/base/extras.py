"""Packages that are not installed by default, and how to get them where this package came from."""

import functools
import importlib.metadata
import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from dreamfleet.errors import ConfigError

NAMES = "dreamfleet", "dreamfleet-env"  # of distributions with this package; the second is for environments only
DEVELOPMENT = "dev", "docs", "test"  # extras for those who change it


def check_installed(key: str, value: object, packages: Iterable[str], remedy: str) -> None:
    """Raises ConfigError if a package that a setting needs is not installed; imports nothing."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(key, value, f"needs the package {package}, which is not installed", remedy)


def find_distribution() -> importlib.metadata.Distribution | None:
    """What this package was installed as, if it was."""
    found = [found for name in NAMES for found in importlib.metadata.distributions(name=name)]
    # A clone that was built has metadata too, which tells nothing about the installation; that of pip comes first.
    return min(found, key=lambda one: one.read_text("INSTALLER") is None, default=None)


def list_extras() -> dict[str, list[str]]:
    """The requirements of each extra for users."""
    distribution = find_distribution()
    if distribution is None:
        return {}
    pattern = re.compile(r"(?P<requirement>[^;]+);.*\bextra == ['\"](?P<extra>[\w-]+)['\"]")
    found = [match for line in distribution.requires or () if (match := pattern.match(line))]
    names = distribution.metadata.get_all("Provides-Extra") or ()
    return {
        name: [match["requirement"].strip() for match in found if match["extra"] == name]
        for name in names
        if name not in DEVELOPMENT
    }


def find_missing(requirements: Iterable[str]) -> list[str]:
    """The packages among requirements that are not installed, by name; versions are left to pip."""
    missing = []
    for requirement in requirements:
        name, extra = re.match(r"([\w.-]+)(?:\[([\w-]+)\])?", requirement).groups()  # type: ignore[union-attr]
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        parts = [line for line in distribution.requires or () if extra and re.search(rf"extra == .{extra}\W", line)]
        missing += find_missing(parts)
    return list(dict.fromkeys(missing))


@functools.cache
def install_command(extra: str) -> str:
    """The command that adds an extra to this installation: from an index, a clone or a file, whichever it is."""
    distribution = find_distribution()
    written = distribution.read_text("direct_url.json") if distribution else None
    origin = json.loads(written) if written else {}
    url = origin.get("url", "")
    if origin.get("dir_info", {}).get("editable"):
        return f"{pip()} install --editable '{url.removeprefix('file://')}[{extra}]'"
    if "archive_info" in origin or "vcs_info" in origin or "dir_info" in origin:
        revision = origin.get("vcs_info", {})
        url = f"{revision['vcs']}+{url}@{revision['commit_id']}" if revision else url
        return f"{pip()} install '{NAMES[0]}[{extra}] @ {url}'"
    return f"{pip()} install '{NAMES[0]}[{extra}]'"


def pip() -> str:
    """How to call pip for the Python that runs this: a bare `pip` may be that of another one."""
    found = shutil.which("pip")
    if found and Path(found).absolute().parent == Path(sys.executable).absolute().parent:
        return "pip"
    return f"{sys.executable} -m pip" if importlib.util.find_spec("pip") or not shutil.which("uv") else "uv pip"
