"""`status.json` of a run or of roles that have joined it, whoever wrote it: only what has the expected shape."""

import json
import math
from typing import Any


def parse_status(content: bytes) -> dict[str, Any]:
    """What `status.json` holds, with None for numbers that are not finite; empty if that is not a status."""
    try:
        status = json.loads(content, parse_float=_parse_float, parse_constant=_parse_float)
        for role in status.get("roles", {}).values():
            role["waits"] = [wait for wait in role.get("waits") or () if isinstance(wait["what"], str)]
            for wait in role["waits"]:
                wait["seconds"], wait["share"] = float(wait["seconds"] or 0.0), float(wait.get("share", 1.0) or 0.0)
            role["state"], role["restarts"] = str(role.get("state", "starting")), int(role.get("restarts") or 0)
            role["figures"] = dict(role.get("figures") or {})
        elapsed_s = float(status.get("elapsed_s") or 0.0)
        return {**status, "state": str(status.get("state", "starting")), "elapsed_s": elapsed_s}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return {}


def _parse_float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
