"""The fleet as a page draws it: roles with what they cost, who waits for whom, the limiter, faults and log tails."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dreamfleet.base.waits import find
from dreamfleet.dashboard.joined import log_path
from dreamfleet.metrics.bottlenecks import MATTERS, describe_wait, find_bottleneck, rank_wait

if TYPE_CHECKING:
    from dreamfleet.dashboard.run import Run

TAIL_BYTES = 256 << 10
MAX_LINES = 2000
MAX_FAULTS = 20
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_BIRTH = re.compile(r"--- (\S+ \S+) (\S+) incarnation (\d+) pid (\d+) ---")
_TRACEBACK = re.compile(r"\s*Traceback \(most recent call last\)")

# The edge of the picture for waits that are declared for any peer: who is waited for, and who waits.
_PEER_EDGES = {"actor": ("actor", "env"), "logger": ("logger", "agent")}

# The metric that tells how quick a role is, and in what.
_RATES = {
    "actor": ("actor/steps_per_s", "steps/s"),
    "learner": ("learner/updates_per_s", "updates/s"),
    "env": ("env/steps_per_s", "steps/s each"),
    "replay": ("replay/add_batch/rate", "inserts/s"),
    "logger": ("logger/add/rate", "messages/s"),
}


def describe_fleet(run: "Run") -> dict[str, Any]:
    """All that the page of the fleet shows, but for logs."""
    roles = run.status.get("roles", {})
    return {
        "state": run.summary()["state"],
        "bottleneck": run.summary()["bottleneck"] or find_bottleneck(run.status, run.progress),
        "roles": [_describe_role(run, name, role) for name, role in roles.items()],
        "parts": describe_parts(run),
        "edges": find_edges(roles) if run.is_live else [],
        "limiter": describe_limiter(run),
    }


def describe_parts(run: "Run") -> dict[str, dict[str, Any]]:
    """How quick each part of the picture is, by the latest lines that were read."""
    return {part: {"rate": run.last(metric), "unit": unit} for part, (metric, unit) in _RATES.items()}


def find_edges(roles: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Who waits for whom: for each edge the longest of the waits, and which of them is the cause of the others."""
    edges: dict[tuple[str, str], dict[str, Any]] = {}
    for name, role in roles.items():
        for wait in role["waits"]:
            kind, names = find(wait["what"])
            ends = kind.edge or _PEER_EDGES.get(names.get("peer", ""))
            if ends and (ends not in edges or _waited_s(wait) > _waited_s(edges[ends])):
                edges[ends] = {**wait, "for": ends[0], "who": ends[1], "role": name}
    long = [edge for edge in edges.values() if edge["share"] >= MATTERS]
    first = min((rank_wait(edge["what"]) for edge in long), default=None)
    return [{**edge, "is_cause": edge in long and rank_wait(edge["what"]) == first} for edge in edges.values()]


def _waited_s(wait: Mapping[str, Any]) -> float:
    return wait["seconds"] * wait["share"]


def describe_limiter(run: "Run") -> dict[str, Any] | None:
    """Inserts against samples, with the thresholds of `replay/limiter.py`; None if nothing is known yet."""
    run.load_config()
    progress, config = run.progress, run.config or {}
    try:
        size, length = int(config["batch_size"]), int(config["batch_length"])
        per_insert = progress.target_ratio / length
        sequence = int(config["consec_train"]) * length + int(config["replay_context"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    inserts, samples = progress.step, round((progress.ratio or 0.0) * progress.step / length)
    tolerance = 4 * size
    return {
        "inserts": inserts,
        "samples": samples,
        "ratio": progress.ratio,
        "target": progress.target_ratio,
        "diff": per_insert * max(0, inserts - size * sequence) - samples,
        "low": -tolerance,
        "high": max(tolerance * per_insert, 2 * size),
    }


def find_faults(run: "Run") -> list[dict[str, Any]]:
    """Restarts and tracebacks in the logs of all roles, the latest first."""
    roles = run.status.get("roles", {})
    faults = []
    for name in run.logs():
        restarts, others = _faults_in(name, read_tail(run, name))
        # A run that is resumed starts its roles again too: the supervisor knows which of the starts were none of that.
        count = roles[name]["restarts"] if name in roles else len(restarts)
        faults += restarts[len(restarts) - min(count, len(restarts)) :] + others
    return sorted(faults, key=lambda fault: fault["time"], reverse=True)[:MAX_FAULTS]


def read_tail(run: "Run", name: str) -> list[str]:
    """The last lines of a role's log, without the codes of terminals."""
    text = run.folder.read(log_path(name), TAIL_BYTES).decode(errors="replace")
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in text.splitlines()]
    return lines[1:] if len(text) >= TAIL_BYTES else lines  # the first one may be a part


def search_lines(lines: Iterable[str], text: str) -> list[str]:
    """The lines in which a text is found, whatever its case; the last ones if they are many."""
    return [line for line in lines if text.lower() in line.lower()][-MAX_LINES:]


def _faults_in(name: str, lines: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Starts of a role after the first, and tracebacks."""
    restarts: list[dict[str, Any]] = []
    faults: list[dict[str, Any]] = []
    when, trace = "", None
    for line in lines:
        if birth := _BIRTH.match(line):
            when, trace = birth[1], None
            if int(birth[3]) > 0:
                what = f"restarted (incarnation {birth[3]})"
                restarts.append({"role": name, "time": when, "what": what, "trace": ""})
        elif stamp := _STAMP.match(line):
            when, trace = stamp[1], None
        if _TRACEBACK.match(line):
            trace = {"role": name, "time": when, "what": "", "trace": line}
            faults.append(trace)
        elif trace is not None:
            trace["trace"] += f"\n{line}"
            if line and not line.startswith((" ", "\t")):
                trace["what"] = line[:300]
    return restarts, faults


def _describe_role(run: "Run", name: str, role: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "env" if re.fullmatch(r"(.*/)?env\d+", name) else name.rpartition("/")[2],
        **{key: role.get(key) for key in ("machine", "restarts", "heartbeat_age_s", "cpu", "memory_mb", "exit")},
        # Until it runs again, a role that died is missing.
        "state": "restarting" if role["state"] == "starting" and role["restarts"] else role["state"],
        "waits": [
            {**wait, "text": describe_wait(wait["what"], wait["seconds"], wait["share"], name, run.progress)}
            for wait in role["waits"]
        ],
    }
