"""Every message between roles, in the order of the walk of a step.

method          from -> to         data -> of the reply         metadata -> of the reply     after a lost connection
--------------  -----------------  ---------------------------  ---------------------------  -----------------------
hello           all -> all         Hello -> Hello                                            said again, first of all
lease           env -> actor       LeaseRequest -> Lease                                     asked again
act             env -> actor       observation -> actions       ActSession ->                fails: new episode
act_many        env -> actor       the same with a leading K    ActSession ->                fails: new episodes
add_batch       actor -> replay    transitions ->               BatchMark -> ReplayCounts    sent again, done once
tran            actor -> logger    transitions ->               LogPosition ->               dropped
sample_batch_*  learner -> replay  -> rows or references        SampleRequest -> SampleInfo  sent again, done once
update          learner -> replay  stepid, new values ->                                     sent again
add             learner -> logger  metrics ->                   RunPosition ->               sent again
add             others -> logger   metrics ->                                                dropped
status          joined -> actor    MachineStatus ->                                          dropped: another follows
save            learner -> replay  SaveRequest -> ReplayCounts                               fails: part is missing
save            learner -> logger  SaveRequest -> LoggerCounts                               fails: part is missing
gang_join       learner -> gang    GangJoin -> GangPlace                                     asked again
gang_watch      learner -> gang    GangSign -> GangNews                                      fails: the gang is broken
gang_pass       learner -> gang    GangSign -> GangNews                                      fails: the gang is broken
gang_end        learner -> gang    GangSign -> GangNews                                      fails: the gang is broken

A plain portal program sends no metadata, says no hello, and is served with the defaults below. As a server it is called
without both, and never asked to `act_many` or to `save`, nor told a `status`: an unknown method or key would end it.
"""

import functools
import json
from dataclasses import dataclass, field
from typing import Annotated

from dreamfleet.roles.message import (
    Count,
    Counts,
    Flag,
    Message,
    Name,
    Number,
    Paths,
    Seconds,
    Texts,
    items,
    table,
    text,
    text_list,
    whole,
)

# Raised with every change of a message; peers of another version are refused. A method that a peer may do without, such
# as `status`, does not raise it: who does not know it refuses its calls, and nothing else.
VERSION = 4

HELLO = "hello"
LEASE = "lease"
STATUS = "status"

ACT, ACT_MANY = "act", "act_many"
ADD_BATCH, TRAN = "add_batch", "tran"
UPDATE, ADD, SAVE = "update", "add", "save"
GANG_JOIN, GANG_WATCH, GANG_PASS, GANG_END = "gang_join", "gang_watch", "gang_pass", "gang_end"
MODES = ("train", "report", "eval")
ROLES = ("env", "actor", "learner", "replay", "logger")
SAMPLE_BATCH = {mode: f"sample_batch_{mode}" for mode in MODES}
# After a lost connection, unless the sender says otherwise; all other calls fail, or are dropped.
SENT_AGAIN = frozenset({ADD_BATCH, UPDATE, ADD, *SAMPLE_BATCH.values()})

# Keys of the rows in `act`, `add_batch` and `tran` that belong to the message; all others are what environment and
# agent call them.
ENV_ID, IS_EVAL = "envid", "is_eval"
RESET = "reset"  # in answers to `act`: the episode is over
STEP_ID = "stepid"  # in batches and updates: the name of a row

MARK_BYTES = 32  # of an actor's name, which replay keeps with its rows

STATUS_BYTES = 1 << 16  # of a machine's status, as JSON
STATUS_ROLES = 256
STATUS_WAITS = 4  # of each of them
STATUS_FAILURES = 2
LAST_LINES, LINE_BYTES = 20, 300  # of the log of a role that failed
WAIT_BYTES, REASON_BYTES = 200, 255


@dataclass(frozen=True, slots=True)
class ReplayCounts(Message):
    """replay -> actor, learner: how far the run is. A step is one committed training row."""

    inserts: Count = 0  # steps
    samples: Count = 0  # sequences handed out for training
    items: Count = 0  # sequences that can be sampled
    eval_items: Count = 0
    capacity: Count = 0  # in steps; 0 where the replay does not say
    steps: Count = 0  # that the replay holds


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """Who a process is: sent first over every connection, and answered with the other side's own.

    What a side does not know it leaves empty; what both know has to agree.
    """

    role: Name = ""  # env, actor, learner, replay, logger
    session: Name = ""  # this client, as it calls itself in `ActSession`, `BatchMark` and `SampleRequest`
    owner: Name = ""  # whoever started the process: of its environments, the newest is the one that counts
    host: Name = ""
    package: Name = ""  # version of dreamfleet
    run: Name = ""  # id, by which a run is told from others, also after it was resumed
    task: Annotated[str, text(255)] = ""
    settings: Texts = field(default_factory=dict)  # options that have to be the same on both sides
    envs: Counts = ()  # numbers of the environments of a worker
    is_eval: Flag = False
    obs_space: Texts = field(default_factory=dict)
    act_space: Texts = field(default_factory=dict)
    counts: ReplayCounts | None = None  # what replay holds, or what the run has stored as far as the others know


@dataclass(frozen=True, slots=True)
class LeaseRequest(Message):
    """env -> actor, `lease`: asks for numbers of environments; one that its owner restarts has the same ones again."""

    owner: Name = ""
    worker: Name = ""  # among those of its owner
    count: Count = 0
    is_eval: Flag = False


@dataclass(frozen=True, slots=True)
class Lease(Message):
    """actor -> env, `lease`: the numbers, for as long as they are stepped, and a number that no other lease has."""

    envs: Counts = ()
    life: Count = 0


@dataclass(frozen=True, slots=True)
class ActSession(Message):
    """env -> actor, `act` and `act_many`: which of two processes with the same environment is the newer one."""

    session: Name = ""  # without one, nobody is taken over

    @classmethod
    def read(cls, meta: dict) -> str:
        """The session of a request; those of a worker are all the same, and are checked once."""
        session = meta.get("session") if isinstance(meta, dict) else None
        return _check_session(session) if type(session) is str else cls.from_meta(meta).session


@functools.lru_cache(maxsize=4096)
def _check_session(session: str) -> str:
    return ActSession.from_meta({"session": session}).session


@dataclass(frozen=True, slots=True)
class BatchMark(Message):
    """actor -> replay, `add_batch`: by which replay knows a message that it has committed already.

    Without an actor's name the message is taken as new, so that it is delivered at least once.
    """

    actor: Annotated[str, text(MARK_BYTES)] = ""  # this life of it
    sequence: Count = 0  # counts up

    def covers(self, other: "BatchMark") -> bool:
        """Whether the other message was there when this one came."""
        return bool(other.actor) and other.actor == self.actor and other.sequence <= self.sequence


@dataclass(frozen=True, slots=True)
class LogPosition(Message):
    """actor -> logger, `tran`: where in the run the rows are, and whether rows before them were dropped."""

    step: Count | None = None  # else the logger counts rows
    gap: Flag = False


@dataclass(frozen=True, slots=True)
class ReaderPlace(Message):
    """Where a learner runs: on replay's machine it is sent references, from which it reads the rows itself."""

    boot: Name  # one start of one machine
    pid: Count


@dataclass(frozen=True, slots=True)
class SampleRequest(Message):
    """learner -> replay, `sample_batch_*`: which batch this is, and how it is wanted.

    A named learner numbers its calls and says up to which it has the answers: a call that is sent again gets the batch
    that it got before.
    """

    wait_s: Seconds | None = None  # after which the answer says `is_pending`; without it, waits for a batch
    learner: Name = ""  # begins with the session of its hello
    number: Count = 0
    received: Annotated[int, whole(-1)] = -1
    updates: Count | None = None  # where a learner that starts stands: samples are counted from there
    again: Flag = False  # in place of a batch that was counted, but whose rows were gone
    reader: ReaderPlace | None = None


@dataclass(frozen=True, slots=True)
class SegmentPlaces(Message):
    """Where the rows of a batch of references are."""

    paths: Paths  # by the serial of the segment
    oldest: Count  # serial that still exists


@dataclass(frozen=True, slots=True)
class SampleInfo(Message):
    """replay -> learner, with a batch: the counts after it, and what kind of answer it is."""

    counts: ReplayCounts = ReplayCounts()
    is_pending: Flag = False  # no batch within `wait_s`
    references: SegmentPlaces | None = None  # the data has step ids in place of rows


@dataclass(frozen=True, slots=True)
class RunProgress(Message):
    """What the learner knows of the run, for `progress.json`."""

    counts: ReplayCounts
    updates: Count
    elapsed_s: Seconds


@dataclass(frozen=True, slots=True)
class RunPosition(Message):
    """learner -> logger, `add`: where in the run the metrics are."""

    step: Count = 0
    progress: RunProgress | None = None
    by_key: Flag = True  # the end of a key says how values are reduced; else they are averaged, and arrays joined


@dataclass(frozen=True, slots=True)
class SaveRequest(Message):
    """learner -> replay, logger, `save`: the checkpoint draft to add a part to, and the run that it is of."""

    name: Annotated[str, text(255, least=1)]
    run: Name = ""  # without one, the draft is in the receiver's own log directory


@dataclass(frozen=True, slots=True)
class LoggerCounts(Message):
    """logger -> learner, `save`: what its part of the checkpoint stands for."""

    episodes: Count = 0
    score: Number | None = None  # of the last episodes; without enough since the last checkpoint that has one, none
    is_eval: Flag = False  # whether these were of evaluation


@dataclass(frozen=True, slots=True)
class RoleWait(Message):
    """What a role waits for, as in `status.json`."""

    what: Annotated[str, text(WAIT_BYTES)] = ""
    seconds: Seconds = 0.0
    share: Number = 1.0


@dataclass(frozen=True, slots=True)
class RoleCounts(Message):
    """What a role has done so far, as in `status.json`."""

    steps: Count | None = None
    envs: Count | None = None
    rebuilds: Count | None = None
    lost_answers: Count | None = None


@dataclass(frozen=True, slots=True)
class RoleStatus(Message):
    """What one process is doing, as in `status.json`."""

    state: Name = "starting"
    pid: Count | None = None
    restarts: Count = 0
    hangs: Count = 0
    heartbeat_age_s: Seconds | None = None
    cpu: Number | None = None  # cores
    memory_mb: Number | None = None
    exit: Annotated[str, text(REASON_BYTES)] | None = None  # of its life before
    since: Seconds = 0.0  # it is in this state
    waits: Annotated[tuple[RoleWait, ...], items(RoleWait, STATUS_WAITS)] = ()
    figures: RoleCounts = RoleCounts()


@dataclass(frozen=True, slots=True)
class RoleFailure(Message):
    """The death of one process, and the end of its log."""

    number: Count = 0  # counts up, so that each is told once
    role: Name = ""
    reason: Annotated[str, text(REASON_BYTES)] = ""
    lines: Annotated[tuple[str, ...], text_list(LAST_LINES, LINE_BYTES)] = ()


@dataclass(frozen=True, slots=True)
class MachineStatus(Message):
    """supervisor of joined roles -> actor, `status`: how they do, every few seconds; nobody waits for the answer.

    What `status.json` there says, and the failures that have not been answered for yet.
    """

    owner: Name = ""  # as in the hellos of its roles
    session: Name = ""  # this life of it, in which failures are counted
    name: Name = ""  # of its directory
    run: Name = ""  # whose log directory that is in; empty if it has one of its own
    host: Name = ""
    package: Name = ""  # version of dreamfleet
    protocol: Count = 0
    state: Name = "starting"
    elapsed_s: Seconds = 0.0
    env_rate: Number = 0.0  # steps per second
    processes: Count = 0  # also those that there is no room for below
    roles: Annotated[dict[str, RoleStatus], table(RoleStatus, STATUS_ROLES)] = field(default_factory=dict)
    failures: Annotated[tuple[RoleFailure, ...], items(RoleFailure, STATUS_FAILURES)] = ()

    def count_bytes(self) -> int:
        return len(json.dumps(self.to_data()))


@dataclass(frozen=True, slots=True)
class GangJoin(Message):
    """learner -> gang, `gang_join`: a replica asks for its place among those that train one agent."""

    replica: Count
    session: Name  # this life of it
    owner: Name = ""  # whoever restarts it
    host: Name = ""
    settings: Texts = field(default_factory=dict)  # that all have to have in common
    wait_s: Seconds = 0.0  # after which the answer says `is_pending`


@dataclass(frozen=True, slots=True)
class GangPlace(Message):
    """gang -> learner, `gang_join`: which life of the gang this is, and where its agents meet on the gang's host."""

    is_pending: Flag = False  # not all are there
    generation: Count = 0
    port: Count = 0
    missing: Counts = ()  # replicas


@dataclass(frozen=True, slots=True)
class GangSign(Message):
    """learner -> gang: a sign of life, with the next common step (`gang_pass`) or the verdict (`gang_end`)."""

    session: Name
    generation: Count
    wait_s: Seconds = 0.0  # for news
    update: Annotated[int, whole(-1)] = -1
    verdict: Name = ""  # complete, stopped


@dataclass(frozen=True, slots=True)
class GangNews(Message):
    """gang -> learner: whether all make the update, or whether and why the gang is over or broken."""

    may_update: Flag = False
    verdict: Name = ""
    by: Count = 0  # the replica of the verdict
    broken: Annotated[str, text(REASON_BYTES)] = ""
