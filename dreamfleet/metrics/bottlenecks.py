"""The phase of a run and its waits in the user's words, from the state and the waits in `status.json`.

What there is to wait for, and how to say it, is declared in `base/waits.py`.
"""

import re

from dreamfleet.base import waits as kinds
from dreamfleet.metrics.progress import Progress

_MAX_WAITS = 2
_ALWAYS = 0.99  # a share of the time above this is one uninterrupted wait
_SHORT_S = 0.5
MATTERS = 0.2  # a wait for less of the time than this is no bottleneck
# What follows from the phase before the first update, and would name a bottleneck that the run does not have.
_BEFORE_TRAINING = (
    kinds.RATIO_INSERT,
    kinds.RATIO_SAMPLE,
    kinds.REPLAY_ROOM,
    kinds.BATCH,
    kinds.SAMPLE_BATCH,
    kinds.ACTION,
)
_FIRST = {kinds.TRAIN_STEP: "compiling train step", kinds.RATIO_SAMPLE: "waiting for environments"}
_BOTTLENECKS = dict.fromkeys(wait.bottleneck for wait in kinds.ALL if wait.bottleneck)


def find_phase(progress: Progress, status: dict) -> str:
    """Starting, compiling, prefilling replay buffer, training, saving, stopping, stopped, finished or failed."""
    state = status.get("state", "starting")
    if state == "complete":
        return "finished"
    if state == "stopping":
        return "saving" if _is_waiting(status, kinds.CHECKPOINT, kinds.CHECKPOINT_PART) else "stopping"
    if state == "starting" and _is_waiting(status, kinds.FIRST_POLICY):
        return "compiling"
    if state != "running" or is_joined(status):
        return state
    if has_trained(progress, status):
        return "training"
    return "compiling" if _is_waiting(status, kinds.TRAIN_STEP) else "prefilling replay buffer"


def is_joined(status: dict) -> bool:
    """Whether these are roles that have joined a run, whose agent is elsewhere."""
    roles = status.get("roles", {})
    return bool(roles) and roles.keys().isdisjoint(("agent", "preflight"))


def has_trained(progress: Progress, status: dict) -> bool:
    """Whether there was an update since the agent started; those of earlier lives of a run are among the progress."""
    agent = status.get("roles", {}).get("agent", {})
    return bool((agent.get("figures") or {}).get("new_updates", progress.updates))


def find_compilation_s(status: dict) -> float:
    """For how long the agent has been compiling what the phase is about."""
    waits = [wait for role in status.get("roles", {}).values() for wait in role.get("waits") or ()]
    compiling = (kinds.FIRST_POLICY, kinds.TRAIN_STEP)
    return max((wait["seconds"] for wait in waits if kinds.find(wait["what"])[0] in compiling), default=0.0)


def format_waits(status: dict, progress: Progress) -> str:
    """The longest waits; roles that wait for the same thing are grouped."""
    waits: dict[str, list[tuple[float, float, str]]] = {}  # what -> seconds, share and who
    for name, role in status.get("roles", {}).items():
        for wait in role.get("waits") or ():
            waits.setdefault(wait["what"], []).append((wait["seconds"], wait.get("share", 1.0), name))
    hidden = () if has_trained(progress, status) or is_joined(status) else _BEFORE_TRAINING
    if status.get("state") == "starting":  # until the first steps: they may have to come from elsewhere
        hidden = tuple(kind for kind in hidden if kind is not kinds.RATIO_SAMPLE)
    causes = {
        what: entries
        for what, entries in waits.items()
        if not _is_explained(what, waits) and kinds.find(what)[0] not in hidden
    }
    ranked = sorted(causes.items(), key=lambda item: -max(item[1])[0])[:_MAX_WAITS]
    return ", ".join(_format_wait(what, entries, has_trained(progress, status)) for what, entries in ranked)


def describe_wait(what: str, seconds: float, share: float, who: str, progress: Progress) -> str:
    """One wait of one role in the user's words."""
    return _format_wait(what, [(seconds, share, who)], bool(progress.updates))


def find_bottleneck(status: dict, progress: Progress) -> str:
    """One sentence that answers what holds the run up."""
    phase, roles = find_phase(progress, status), status.get("roles", {})
    if phase not in ("training", "running"):
        running = sum(role.get("state") == "running" for role in roles.values())
        return f"starting: {running} of {len(roles)} roles are running" if phase == "starting" and roles else phase
    if down := [name for name, role in roles.items() if role.get("state", "running") not in ("running", "stopping")]:
        role = roles[down[0]]
        cause = f" ({role['exit']})" if role.get("exit") else ""
        return f"{_join(down)} {'is' if len(down) == 1 else 'are'} {role.get('state')}{cause}"
    waits = [wait for role in roles.values() for wait in role.get("waits") or () if wait["seconds"] >= _SHORT_S]
    for sentence in _BOTTLENECKS:
        found = [wait for wait in waits if kinds.find(wait["what"])[0].bottleneck == sentence]
        if found and (share := max(wait.get("share", 1.0) for wait in found)) >= MATTERS:
            return sentence.format(share=f"{100 * share:.0f} %")
    return "balanced: nobody waits for long" if roles else "running"


def rank_wait(what: str) -> int:
    """The place of a wait among those that explain each other: a lower one is the cause of a higher one."""
    kind, _ = kinds.find(what)
    return kinds.ALL.index(kind if kind.bottleneck else kinds.OTHER)


def _is_explained(what: str, waits: dict) -> bool:
    cause = kinds.find(what)[0].cause
    return cause is not None and cause() in waits


def _format_wait(what: str, entries: list[tuple[float, float, str]], has_trained: bool) -> str:
    seconds, share, _ = max(entries)
    who = _join(list(dict.fromkeys(name for _, _, name in entries)))
    kind, names = kinds.find(what)
    shown = kind.shown if has_trained else _FIRST.get(kind, kind.shown)
    text = shown.format(**{**names, "who": who, "what": what, "time": _format_time(seconds, share, "for ")})
    return text if "{time}" in shown else f"{text} ({_format_time(seconds, share)})"


def _format_time(seconds: float, share: float, prefix: str = "") -> str:
    return f"{prefix}{seconds:.1f} s" if share > _ALWAYS else f"{share:.0%} of the last {seconds:.1f} s"


def _join(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    if all(re.fullmatch(r"env\d+", name) for name in names):
        return f"{len(names)} env workers"
    return f"{names[0]} and {len(names) - 1} more"


def _is_waiting(status: dict, *sought: kinds.Wait) -> bool:
    waits = (wait["what"] for role in status.get("roles", {}).values() for wait in role.get("waits") or ())
    return any(kinds.find(what)[0] in sought for what in waits)
