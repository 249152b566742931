"""The phase of a run and its waits in the user's words, from the state and the waits in `status.json`.

Waits are recorded as `PEER.METHOD` or `PEER: REASON`; what is not in the table is shown as it was recorded.
"""

import re

from dreamfleet.metrics.progress import Progress

_MAX_WAITS = 2
_ALWAYS = 0.95  # a share of the time above this is one uninterrupted wait
_TRAIN_STEP = re.compile(r"device: update")
_SAVING = re.compile(r"checkpoint: .*")

# What is waited for, and how to say it: {who} waits {time}, which is otherwise put behind. The first match counts.
_PHRASES = [
    (re.compile(r".*(learner|environment)-bound.*"), r"\g<0>"),
    (re.compile(r"learner: ratio allows no insert"), "collection paused {time}: learner-bound (train ratio reached)"),
    (re.compile(r"environments: ratio allows no sample"), "learner idle {time}: environment-bound"),
    (re.compile(r"(learner|replay): end of the run"), "all steps taken, waiting for the learner to finish"),
    (re.compile(r"replay: room for \w+"), "acting paused {time} by replay"),
    (re.compile(r"replay\.sample_batch_(\w+)|replay: an? (\w+) batch"), "learner waiting for a batch"),
    (re.compile(r"actor\.act(_many)?"), "{who} waiting for the policy"),
    (re.compile(r"actor: connection"), "{who} connecting to the policy server"),
    (re.compile(r"(\w+): connection"), r"{who} connecting to \1"),
    (re.compile(r"learner: restor\w+ (the )?agent"), "loading checkpoint"),
    (re.compile(r"actor: (ready|start)"), "starting policy server"),
    (_TRAIN_STEP, "training"),
    (re.compile(r"device: report"), "computing report"),
    (_SAVING, "saving checkpoint"),
    (re.compile(r"disk: (.*)|(.*): space for steps"), "{who} paused: disk full"),
    (re.compile(r"environment (\d+): construction"), r"creating env \1"),
    (re.compile(r"environment (\d+): step"), r"env \1 in step()"),
]

# Waits that follow from another one and say no more: that one, and the pattern of what follows.
_CONSEQUENCES = [
    ("environments: ratio allows no sample", re.compile(r"replay\.sample_batch_\w+|replay: an? \w+ batch")),
    ("learner: ratio allows no insert", re.compile(r"replay: room for \w+|replay\.add_batch")),
]

MATTERS = 0.2  # a wait for less of the time than this is no bottleneck
_SHORT_S = 0.5
# In the order in which they explain each other: what is waited for, and what that says about the run.
_BOTTLENECKS = [
    (re.compile(r"disk: (.*)|(.*): space for steps"), "disk-bound: the disk is full, waiting {share} of the time"),
    (
        re.compile(r"learner: ratio allows no insert|.*learner-bound.*"),
        "learner-bound: acting waits {share} of the time for the train ratio",
    ),
    (
        re.compile(r"environments: ratio allows no sample|.*environment-bound.*"),
        "environment-bound: the learner waits {share} of the time for new steps",
    ),
    (re.compile(r"replay: room for \w+"), "replay-bound: acting waits {share} of the time for replay"),
    (
        re.compile(r"replay\.sample_batch_\w+|replay: an? \w+ batch"),
        "replay-bound: the learner waits {share} of the time for batches",
    ),
    (_TRAIN_STEP, "learner-bound: the device computes updates {share} of the time"),
    (re.compile(r"actor\.act(_many)?"), "policy-bound: environments wait {share} of the time for actions"),
    (re.compile(r"environment \d+: step"), "environment-bound: environments are in step() {share} of the time"),
]


def find_phase(progress: Progress, status: dict) -> str:
    """Starting, prefilling replay buffer, compiling, training, saving, stopping, stopped, finished or failed."""
    state = status.get("state", "starting")
    if state == "complete":
        return "finished"
    if state == "stopping":
        return "saving" if _is_waiting(status, _SAVING) else "stopping"
    roles = status.get("roles", {})
    if state != "running" or (roles and "agent" not in roles):  # the agent of joined roles is elsewhere
        return state
    if progress.updates:
        return "training"
    return "compiling" if _is_waiting(status, _TRAIN_STEP) else "prefilling replay buffer"


def format_waits(status: dict, progress: Progress) -> str:
    """The longest waits; roles that wait for the same thing are grouped."""
    waits: dict[str, list[tuple[float, float, str]]] = {}  # what -> seconds, share and who
    for name, role in status.get("roles", {}).items():
        for wait in role.get("waits") or ():
            waits.setdefault(wait["what"], []).append((wait["seconds"], wait.get("share", 1.0), name))
    causes = {what: entries for what, entries in waits.items() if not _is_explained(what, waits)}
    ranked = sorted(causes.items(), key=lambda item: -max(item[1])[0])[:_MAX_WAITS]
    return ", ".join(_format_wait(what, entries, progress) for what, entries in ranked)


def describe_wait(what: str, seconds: float, share: float, who: str, progress: Progress) -> str:
    """One wait of one role in the user's words."""
    return _format_wait(what, [(seconds, share, who)], progress)


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
    for pattern, sentence in _BOTTLENECKS:
        found = [wait for wait in waits if pattern.fullmatch(wait["what"])]
        if found and (share := max(wait.get("share", 1.0) for wait in found)) >= MATTERS:
            return sentence.format(share=f"{100 * share:.0f} %")
    return "balanced: nobody waits for long" if roles else "running"


def rank_wait(what: str) -> int:
    """The place of a wait among those that explain each other: a lower one is the cause of a higher one."""
    ranks = [i for i, (pattern, _) in enumerate(_BOTTLENECKS) if pattern.fullmatch(what)]
    return ranks[0] if ranks else len(_BOTTLENECKS)


def _is_explained(what: str, waits: dict) -> bool:
    return any(cause in waits and pattern.fullmatch(what) for cause, pattern in _CONSEQUENCES)


def _format_wait(what: str, entries: list[tuple[float, float, str]], progress: Progress) -> str:
    seconds, share, _ = max(entries)
    who = _join(list(dict.fromkeys(name for _, _, name in entries)))
    phrase = _find_phrase(what, progress).replace("{who}", who)
    if "{time}" in phrase:
        return phrase.replace("{time}", _format_time(seconds, share, "for "))
    return f"{phrase} ({_format_time(seconds, share)})"


def _format_time(seconds: float, share: float, prefix: str = "") -> str:
    return f"{prefix}{seconds:.1f} s" if share > _ALWAYS else f"{share:.0%} of the last {seconds:.1f} s"


def _find_phrase(what: str, progress: Progress) -> str:
    if _TRAIN_STEP.fullmatch(what) and not progress.updates:
        return "compiling train step"
    matches = ((pattern.fullmatch(what), phrase) for pattern, phrase in _PHRASES)
    return next((match.expand(phrase) for match, phrase in matches if match), f"{{who}} waiting for {what}")


def _join(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    if all(re.fullmatch(r"env\d+", name) for name in names):
        return f"{len(names)} env workers"
    return f"{names[0]} and {len(names) - 1} more"


def _is_waiting(status: dict, pattern: re.Pattern) -> bool:
    waits = (wait["what"] for role in status.get("roles", {}).values() for wait in role.get("waits") or ())
    return any(pattern.fullmatch(what) for what in waits)
