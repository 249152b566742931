"""Every wait that a role declares, once: what `status.json` records, what a user reads, and what it says of the run.

Roles pass one to `lifecycle.waiting`; the terminal and the dashboard find it again by the recorded text, `PEER.METHOD`
or `PEER: REASON`, which other versions can read too.
"""

import re
from dataclasses import dataclass

_PATTERNS = {
    "act": "act|act_many",
    "env_id": r"[0-9]+",
    "missing": "[0-9, ]*",
    "place": ".+",
    "reason": ".+",
    "what": ".*",
}  # else a word


@dataclass(frozen=True)
class Wait:
    """A kind of wait; names in braces are filled in by whoever waits."""

    text: str  # as recorded
    shown: str = "{who} waiting for {what}"  # for the {time}, which is otherwise put behind
    bottleneck: str = ""  # what it says of a run in which it takes a large {share} of the time
    edge: tuple[str, str] | None = None  # of the picture of a fleet: who is waited for, and who waits
    cause: "Wait | None" = None  # another wait beside which this one says no more

    def __call__(self, **values: object) -> str:
        return self.text.format(**values)

    def match(self, what: str) -> dict[str, str] | None:
        """What the names in braces stand for, if `what` is a wait of this kind."""
        parts = re.split(r"{(\w+)}", self.text)  # every second one is a name
        names = (f"(?P<{name}>{_PATTERNS.get(name, '[A-Za-z0-9_]+')})" for name in parts[1::2])
        pattern = "".join(re.escape(text) + next(names, "") for text in parts[::2])
        found = re.fullmatch(pattern, what, re.DOTALL)
        return found and found.groupdict()


_NO_BATCH = "learner waiting for a batch", "replay-bound: the learner waits {share} of the time for batches"
_NO_ROOM = "acting paused {time} by replay", "replay-bound: acting waits {share} of the time for replay"

NO_SPACE = Wait(
    "disk: {reason}", "{who} paused: disk full", "disk-bound: the disk is full, waiting {share} of the time"
)
SEGMENT = Wait(
    "{place}: space for steps",
    "{who} allocating replay storage",
    "disk-bound: replay waits {share} of the time for storage to be allocated",
)
AGENT_CONSTRUCTION = Wait("agent: construction", "creating the agent")
FIRST_POLICY = Wait("device: first actions", "compiling policy")  # or whatever else an agent does when it first acts
RATIO_INSERT = Wait(
    "learner: ratio allows no insert",
    "collection paused {time}: learner-bound (train ratio reached)",
    "learner-bound: acting waits {share} of the time for the train ratio",
    edge=("learner", "replay"),
)
RATIO_SAMPLE = Wait(
    "environments: ratio allows no sample",
    "learner idle {time}: environment-bound",
    "environment-bound: the learner waits {share} of the time for new steps",
    edge=("actor", "replay"),
    cause=AGENT_CONSTRUCTION,
)
END_OF_RUN = Wait("{peer}: end of the run", "all steps taken, waiting for the learner to finish")
REPLAY_ROOM = Wait("replay: room for {method}", *_NO_ROOM, edge=("replay", "actor"), cause=RATIO_INSERT)
ADD_BATCH = Wait("replay.add_batch", edge=("replay", "actor"), cause=RATIO_INSERT)
FIRST_ANSWER = Wait(
    "replay: its first acknowledgement", "acting paused {time} until replay answers", edge=("replay", "actor")
)
BATCH = Wait("replay: a {mode} batch", *_NO_BATCH, edge=("replay", "learner"), cause=RATIO_SAMPLE)
SAMPLE_BATCH = Wait("replay.sample_batch_{mode}", *_NO_BATCH, edge=("replay", "learner"), cause=RATIO_SAMPLE)
UPDATE_REPLAY = Wait("replay.update", edge=("replay", "learner"))
TRAIN_STEP = Wait("device: update", "training", "learner-bound: the device computes updates {share} of the time")
REPORT = Wait("device: report", "computing report")
ACTION = Wait(
    "actor.{act}",
    "{who} waiting for the policy",
    "policy-bound: environments wait {share} of the time for actions",
    edge=("actor", "env"),
    cause=FIRST_POLICY,
)
ENV_STEP = Wait(
    "environment {env_id}: step",
    "env {env_id} in step()",
    "environment-bound: environments are in step() {share} of the time",
)
ENV_CONSTRUCTION = Wait("environment {env_id}: construction", "creating env {env_id}")
ENV_DATA = Wait("environments: {mode} data")
ENV_FAREWELL = Wait("environments: the end of the run")
ACTOR_START = Wait("actor: start", "starting policy server")
ACTOR_CONNECTION = Wait(
    "actor: connection", "{who} connecting to the policy server", edge=("actor", "env"), cause=AGENT_CONSTRUCTION
)
ACTOR_RECOVERY = Wait("actor: answers without errors", edge=("actor", "env"))
REPLICAS = Wait("gang: other replicas ({missing})", "waiting for the other replicas ({missing})")
BARRIER = Wait(
    "gang: update",
    "learner waiting for the other replicas",
    "replica-bound: the learner waits {share} of the time for the other replicas",
)
RESTORE = Wait("learner: restoring the agent", "loading checkpoint")
RAY_PLACE = Wait("ray: a place in the cluster", "{who} waiting for room in the Ray cluster")
CHECKPOINT = Wait("checkpoint: writing", "saving checkpoint")
CHECKPOINT_PART = Wait("checkpoint: part of the {part}", "saving checkpoint")
LAST_METRICS = Wait("{tracker}: last metrics")
# What any client or server of ours waits for.
CONNECTION = Wait("{peer}: connection", "{who} connecting to {peer}")
ROOM = Wait("{peer}: room for {method}")
ACKNOWLEDGEMENT = Wait("{peer}: acknowledgement of the last transitions")
EARLIER_BATCHES = Wait("{peer}: work that follows earlier batches")
ANSWER = Wait("{peer}.{method}")
OTHER = Wait("{what}")  # of another version, or not ours

# The first that matches counts, and is a cause of those after it.
ALL = tuple(value for value in globals().values() if isinstance(value, Wait))


def find(what: str) -> tuple[Wait, dict[str, str]]:
    """The kind of a recorded wait, and what its names stand for."""
    return next((wait, names) for wait in ALL if (names := wait.match(what)) is not None)
