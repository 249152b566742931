"""Names of tasks within a suite; used by the suites that know all of theirs."""

from collections.abc import Collection

from dreamfleet.base.hints import nearest
from dreamfleet.errors import ConfigError


def check_name(suite: str, name: str, names: Collection[str]) -> None:
    """Raises ConfigError for a name that the suite does not have, with the nearest that it has."""
    if name in names:
        return
    near = nearest(name, names) or sorted(names)[:5]
    hint = " or ".join(f"{suite}_{other}" for other in near)
    raise ConfigError("task", f"{suite}_{name}", f"is not one of the {len(names)} tasks of {suite}", f"try {hint}")
