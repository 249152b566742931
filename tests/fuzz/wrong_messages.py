"""Messages of a peer that has the key and speaks the protocol, but sends what is wrong: drawn from valid ones."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dreamfleet import rpc
from dreamfleet.errors import BadRequest, RemoteError
from dreamfleet.options import RoleOptions
from dreamfleet.roles import protocol
from dreamfleet.roles.hello import describe_spaces, make_hello
from dreamfleet.testing import CountingEnv

FIRST_ENV = 1_000_000  # environments of this peer, beyond those of the fleet
ENVS = 20  # that it acts in, and as many that it only presents itself for
FLEET_ENVS = 4  # whose numbers are from 0
MOST_CHANGES = 3  # to a message
MOST_BYTES = 1 << 16  # of an array: an allocator keeps what the largest messages took, which would hide a leak
STEP = 5  # of the run, as the peer says: not one that the logger would never get to

WRONG = [
    None, True, 0, 1, -1, 2**31, 2**48, 2**62, -(2**62), 0.5, -1.5, float("nan"), float("inf"), 1e308,
    "", "text", "x" * 70, "x" * 5000, "../../up", "\0", "é\ud7ff", b"", b"bytes",
    "env", "learner", "float32(3,)", "bool()", [0], [0, 1, 2], list(range(5000)),
    [], [1, [2, "a"]], [[1], [2, 3]], {}, {"a": {"b": None}}, [None] * 3,
    np.float32("nan"), np.int64(-1), np.zeros(0, np.float32), np.zeros((0, 3), bool), np.arange(6),
    np.zeros((2, 3, 20), np.uint8), np.full(2, np.nan), np.zeros((2, 4, 4, 3), np.uint8), np.zeros((1, 200, 40)),
    np.array(2**63, np.uint64), np.array([2**64 - 1, 0], np.uint64), np.array([-5, -5]), np.float16(1), np.array(True),
]  # fmt: skip
FIELDS = [
    "session", "actor", "sequence", "step", "gap", "wait_s", "learner", "number", "received", "updates", "again",
    "reader", "progress", "name", "stepid", "priority", "envid", "is_eval", "is_first", "reward", "log/x",
    "role", "owner", "host", "package", "run", "task", "settings", "envs", "obs_space", "act_space", "counts",
    "protocol", "state", "elapsed_s", "env_rate", "processes", "roles", "failures", "waits", "figures", "lines", "pid",
]  # fmt: skip
DTYPES = [np.bool_, np.uint8, np.int8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64]


class Message(NamedTuple):
    """A call as a peer makes it."""

    method: str
    data: Any
    meta: dict[str, Any]


class Peer:
    """Valid messages to every method of a role, as actor, learner and environments of their own would send them."""

    def __init__(self, rng: np.random.Generator, rows: dict[str, np.ndarray], options: RoleOptions):
        self._rng, self._options = rng, options
        self._sequence = 0
        self.first_env = FIRST_ENV
        # Rows of a batch from the replay, which have the columns that it expects.
        self._rows = {key: value[0] for key, value in rows.items() if key not in (protocol.STEP_ID, "consec")}
        self._step_ids = rows[protocol.STEP_ID][0]

    def messages(self, role: str) -> dict[str, Message]:
        """One of each method of the role."""
        self._sequence += 1
        makers = {"actor": self._for_actor, "replay": self._for_replay, "logger": self._for_logger}
        return {message.method: message for message in makers[role]()}

    def _hello(self, role: str, **facts: Any) -> Message:
        hello = make_hello(self._options, role, session=f"{role}{self._sequence}", **facts)
        return Message(protocol.HELLO, hello.to_data(), {})

    def _for_actor(self) -> Iterator[Message]:
        presented = self.first_env + ENVS + self._rng.choice(ENVS, 2, replace=False)
        yield self._hello("env", envs=presented.tolist(), **describe(CountingEnv()))
        yield Message(protocol.LEASE, protocol.LeaseRequest(f"peer{self._sequence}", "env0", 2).to_data(), {})
        yield Message(protocol.STATUS, self._status(), {})
        # Environments of their own: of two requests for one at the same time, the later one counts.
        one, *two = self.first_env + self._rng.choice(ENVS, 3, replace=False)
        session = {"session": f"env{self._sequence}"}  # the newest, which takes over from those before
        obs = CountingEnv(0).step({"action": 0, "reset": True})
        yield Message(protocol.ACT, {**obs, "envid": int(one), "is_eval": False}, dict(session))
        many = {key: np.stack([value, value]) for key, value in obs.items()}
        yield Message(protocol.ACT_MANY, {**many, "envid": np.array(two), "is_eval": np.zeros(2, bool)}, session)

    def _status(self) -> dict[str, Any]:
        wait = protocol.RoleWait("actor.act", 1.5, 0.5)
        role = protocol.RoleStatus("running", 7, 1, waits=(wait,), figures=protocol.RoleCounts(steps=10))
        failure = protocol.RoleFailure(self._sequence, "env0", "killed by SIGKILL", ("one", "two"))
        facts = {"package": "1.0", "protocol": protocol.VERSION, "state": "running", "processes": 1}
        names = {"owner": "peer", "session": "peer", "name": "envs", "host": "there"}
        return protocol.MachineStatus(**names, **facts, roles={"env0": role}, failures=(failure,)).to_data()

    def _for_replay(self) -> Iterator[Message]:
        session = f"learner{self._sequence}"
        yield self._hello("learner", counts=protocol.ReplayCounts(inserts=10))
        request = {"wait_s": 0.0, "learner": session, "number": self._sequence, "received": self._sequence - 1}
        yield Message(protocol.ADD_BATCH, self._transitions(), {"actor": "peer", "sequence": self._sequence})
        for method in protocol.SAMPLE_BATCH.values():
            yield Message(method, None, request)
        echo = self._rows["echo"][:3]
        yield Message(protocol.UPDATE, {"stepid": self._step_ids[:3], "echo": echo, "priority": np.ones(3)}, {})
        yield Message(protocol.SAVE, {"name": f"step-{self._sequence:012d}-000001"}, {})

    def _for_logger(self) -> Iterator[Message]:
        yield self._hello("learner")
        counts = {"inserts": 10, "samples": 5, "items": 3, "eval_items": 0, "capacity": 100}
        progress = {"counts": counts, "updates": 3, "elapsed_s": 1.5}
        metrics = {"peer/mean": 1.0, "peer/steps/max": 3, "peer/values": np.arange(3.0), "peer/image": _image()}
        yield Message(protocol.ADD, metrics, {"step": STEP, "progress": progress})
        log = {"log/double": np.ones(2, np.float32), "image": np.stack([_image(), _image()])}
        yield Message(protocol.TRAN, {**self._transitions(), **log}, {"step": STEP, "gap": False})
        yield Message(protocol.SAVE, {"name": f"step-{self._sequence:012d}-000001"}, {})

    def _transitions(self) -> dict[str, np.ndarray]:
        env_ids = self.first_env + self._rng.choice(ENVS, 2, replace=False)
        return {**{k: v[:2].copy() for k, v in self._rows.items()}, "envid": env_ids, "is_eval": np.zeros(2, bool)}


def describe(env: CountingEnv) -> dict[str, dict[str, str]]:
    """What the hello of a worker says of its environments."""
    actions = describe_spaces(env.act_space, has_bounds=True)
    return {"obs_space": describe_spaces(env.obs_space), "act_space": actions}


def _image() -> np.ndarray:
    return np.zeros((8, 8, 3), np.uint8)


def make_wrong(rng: np.random.Generator, message: Message) -> Message:
    """The message with one to `MOST_CHANGES` things about it changed."""
    data, meta = copy.deepcopy(message.data), copy.deepcopy(message.meta)
    for _ in range(rng.integers(1, MOST_CHANGES + 1)):
        if isinstance(data, dict) and rng.random() < 0.6:
            _change(rng, data)
        elif rng.random() < 0.8:
            _change(rng, meta)
        else:
            data = _pick(rng, WRONG)
    return Message(message.method, data, meta)


def make_heavy(message: Message) -> Message:
    """The message with as much added to it as `make_wrong` can add at most."""
    heavy = max(WRONG, key=lambda value: len(value) if isinstance(value, list) else 0)
    data = message.data if isinstance(message.data, dict) else {}
    return message._replace(data={**data, **{f"log/{i}": heavy for i in range(MOST_CHANGES)}})


def _change(rng: np.random.Generator, tree: dict) -> None:
    """Takes out, adds or changes one value of a dict, or of a dict in it."""
    kind, keys = rng.integers(8), list(tree)
    if kind == 0 or not keys:
        tree[_pick(rng, [*(key for key in FIELDS if key not in tree), "x" * int(rng.integers(1, 2000))])] = _pick(
            rng, WRONG
        )
        return
    key = _pick(rng, keys)
    if kind == 1:
        del tree[key]
    elif key in ("envid", "envs") and kind < 4:
        tree[key] = _claim(rng, tree[key])
    elif isinstance(tree[key], dict) and tree[key]:
        _change(rng, tree[key])
    elif isinstance(tree[key], np.ndarray | np.generic) and kind < 6:
        tree[key] = _spoil(rng, np.asarray(tree[key]))
    else:
        tree[key] = _pick(rng, WRONG)


def _claim(rng: np.random.Generator, env_ids: Any) -> Any:
    """Environments of others in place of one's own."""
    if not (isinstance(env_ids, list) or getattr(env_ids, "ndim", 0)):
        return int(rng.integers(FLEET_ENVS))
    others = rng.choice(FLEET_ENVS, min(FLEET_ENVS, len(env_ids)), replace=False)
    return others.tolist() if isinstance(env_ids, list) else others


def _spoil(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """The array with another data type, shape or number of rows."""
    kind = rng.integers(6)
    if kind == 0 and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return array.astype(_pick(rng, DTYPES))
    if kind == 1:
        return array[None] if rng.integers(2) else array[..., None]
    if kind == 2:
        return array.reshape(-1)[: int(rng.integers(array.size + 1))]
    if kind == 3:
        return np.concatenate([array.reshape(-1)] * int(rng.integers(2, 50)))[: MOST_BYTES // array.itemsize]
    if kind == 4:
        return np.array(_pick(rng, ["text", b"bytes"]))
    return np.frombuffer(rng.bytes(array.nbytes), array.dtype).reshape(array.shape)


def _pick(rng: np.random.Generator, values: list) -> Any:
    return values[int(rng.integers(len(values)))]


def send(client: rpc.Client, messages: list[Message]) -> list[tuple[Message, rpc.Future]]:
    """Sends messages, without those that cannot even be put into bytes; does not wait for their answers."""
    sent = []
    for message in messages:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            sent.append((message, client.call(message.method, message.data, meta=message.meta)))
    return sent


def collect(sent: list[tuple[Message, rpc.Future]], timeout_s: float) -> dict[str, list[str]]:
    """Waits for all answers; what became of each message: `done`, `refused`, or `failed` in the handler."""
    outcomes: dict[str, list[str]] = {"done": [], "refused": [], "failed": []}
    for message, future in sent:
        try:
            future.result(timeout_s)
            outcomes["done"].append(message.method)
        except BadRequest as error:
            outcomes["refused"].append(f"{message.method}: {error}")
        except RemoteError as error:
            # There is no such draft of a checkpoint: that is for the learner to know, as its own may be gone too.
            kind = "refused" if message.method == protocol.SAVE and "CheckpointError" in str(error) else "failed"
            outcomes[kind].append(f"{message.method}: {error}")
    return outcomes
