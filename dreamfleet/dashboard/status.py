"""`status.json` of a run or of roles that have joined it, whoever wrote it: only what has the expected shape."""

import json
from typing import Any


def parse_status(content: bytes) -> dict[str, Any]:
    """What `status.json` holds; empty if that is not a status."""
    try:
        status = json.loads(content)
        for role in status.get("roles", {}).values():
            role["waits"] = [wait for wait in role.get("waits") or () if isinstance(wait["what"], str)]
            for wait in role["waits"]:
                wait["seconds"], wait["share"] = float(wait["seconds"]), float(wait.get("share", 1.0))
            role["state"], role["restarts"] = str(role.get("state", "starting")), int(role.get("restarts", 0))
        elapsed_s = float(status.get("elapsed_s", 0.0))
        return {**status, "state": str(status.get("state", "starting")), "elapsed_s": elapsed_s}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
