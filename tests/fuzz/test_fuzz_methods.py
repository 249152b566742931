"""Every method of every role under peers that have the key but send wrong messages: nobody ends, all go on serving."""

import collections
import contextlib
import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from dreamfleet import rpc
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.options import RoleOptions, key_file, read_args
from dreamfleet.roles import protocol
from dreamfleet.roles.hello import own_run_id
from dreamfleet.roles.wiring import connect
from dreamfleet.testing import CountingAgent, CountingEnv
from tests.fleet import DEADLINE_S, RunningFleet, count_rebuilds, eventually, make_args, running_fleet
from tests.fuzz.hostile import seed_of
from tests.fuzz.wrong_messages import ENVS, FIRST_ENV, Message, Peer, collect, describe, make_heavy, make_wrong, send

MESSAGES = 100_000
BURST = 10  # of each method at a time
WAIT_S = DEADLINE_S
QUARTERS = 4  # memory is looked at after each
LEAK_BYTES = 2 << 20  # in every quarter after the first: 84 bytes for each of 25,000 messages
PORTS = {"actor": "agent", "replay": "replay", "logger": "logger"}  # the role whose process it is in


class TolerantAgent(CountingAgent):
    """Acts on and trains with whatever has the right shape."""

    def policy(self, carry, obs, mode="train"):
        action = np.nan_to_num((obs["env"].astype(np.int64) + 3 * obs["step"]) % 7).astype(np.int32)
        return carry, {"action": action}, {"echo": (obs["step"] * 10).astype(np.int32)}

    def train(self, carry, data):
        with self._lock:
            self.trained += 1
        return carry, {"replay": {"stepid": data["stepid"], "echo": data["echo"]}}, {"updates": np.float32(0)}

    def report(self, carry, data):
        return carry, {"reported": np.float32(1.0)}


class HonestWorker:
    """A worker from elsewhere, whose environment raises at an action that is not its own."""

    def __init__(self, options: RoleOptions):
        self.env_id, self.answered = FIRST_ENV + ENVS, 0  # the first that the peers present themselves for, too
        self._env = CountingEnv(self.env_id)
        self._acts = {"action": 0, "reset": True}
        facts = {"envs": (self.env_id,), **describe(self._env)}
        options = dataclasses.replace(options, owner="worker", run_id="")
        self._client = connect(options, "actor", "worker", me="env", facts=lambda: facts, ends=True)

    def step(self) -> None:
        """Asks for an action, and takes it."""
        obs = {**self._env.step(self._acts), protocol.ENV_ID: self.env_id, protocol.IS_EVAL: False}
        meta = protocol.ActSession(self._client.session).to_meta()
        self._acts = self._client.call(protocol.ACT, obs, meta=meta).result(WAIT_S)
        self.answered += 1

    def close(self) -> None:
        self._client.close()


def own_memory(fleet: RunningFleet) -> dict[str, int]:
    """Bytes that a role's process has for itself, without those of files."""
    memory = {}
    for role in PORTS.values():
        lines = Path(f"/proc/{fleet.status()['roles'][role]['pid']}/status").read_text().splitlines()
        memory[role] = next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return memory


def pids(fleet: RunningFleet) -> dict[str, int]:
    return {name: role["pid"] for name, role in fleet.status()["roles"].items()}


@pytest.mark.distributed
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("transport", ["auto", "zmq", pytest.param("portal", marks=pytest.mark.chaos)])
def test_wrong_messages_with_the_right_key(transport, share, tmp_path):
    place = "ipc:{auto}" if transport == "auto" else "localhost:{auto}"
    addresses = {f"{port}_addr": rpc.resolve_addr(place, transport) for port in PORTS}
    args = make_args(tmp_path, steps=0, transport=transport, max_restarts=0, storage="ram", save_every=5.0, **addresses)
    with running_fleet(args, TolerantAgent, CountingEnv) as fleet, contextlib.ExitStack() as stack:
        fleet.wait_step(200)
        options = dataclasses.replace(read_args(args), owner="peer", run_id=own_run_id(tmp_path))
        clients = {port: stack.enter_context(connect_silent(options, port)) for port in PORTS}
        rng = np.random.default_rng(seed_of(transport))
        peer = Peer(rng, sample(clients["replay"]), options)
        worker = stack.enter_context(contextlib.closing(HonestWorker(options)))
        before, at_start = pids(fleet), fleet.step()
        for port, client in clients.items():  # the most that its process has to hold at a time, once
            collect(send(client, [make_heavy(m) for m in peer.messages(port).values() for _ in range(BURST)]), WAIT_S)
        count, outcomes, memory = int(share * MESSAGES), collections.Counter(), [own_memory(fleet)]
        show(transport, outcomes, memory, 0, worker)
        failures: dict[str, int] = collections.Counter()
        while outcomes.total() < count:
            sent = []
            for port, client in clients.items():
                batch = [make_wrong(rng, message) for _ in range(BURST) for message in peer.messages(port).values()]
                sent += send(client, batch)
            worker.step()
            for outcome, messages in collect(sent, WAIT_S).items():
                outcomes[outcome] += len(messages)
                if outcome == "failed":
                    failures.update(messages)
            assert pids(fleet) == before, "a role was restarted"
            if outcomes.total() >= len(memory) * count / QUARTERS:
                memory.append(own_memory(fleet))
                show(transport, outcomes, memory, fleet.step() - at_start, worker)
        for line, number in failures.items():
            print(f"{number} x {line}")
        check_served(fleet, clients, peer)
        fleet.wait_step(max(at_start, fleet.step()) + 50)
        assert outcomes["refused"] > outcomes["done"], "the messages are as wrong as they should be"
        assert not failures, "what is wrong is refused at the door, and not found out by falling over it"
        assert pids(fleet) == before
        check_memory(memory)
        fleet.kill_to_end("env0")
    assert count_rebuilds(tmp_path) == 0, "an environment got an action that was not its own"


def check_memory(memory: list[dict[str, int]]) -> None:
    """A leak grows with every quarter; what the allocator keeps of the largest messages grows at times, and stops."""
    for role in PORTS.values():
        growth = [after[role] - earlier[role] for earlier, after in itertools.pairwise(memory[1:])]
        assert min(growth) < LEAK_BYTES, f"{role} grows: {[sizes[role] for sizes in memory]}"


def show(transport: str, outcomes: collections.Counter, memory: list[dict], steps: int, worker: HonestWorker) -> None:
    sizes = ", ".join(f"{role} {size / 1e6:.1f} MB" for role, size in memory[-1].items())
    answers = f"{steps} steps of the fleet and {worker.answered} of the worker answered"
    print(f"\nFUZZ {transport}: {outcomes.total()} messages {dict(outcomes)}, {answers}, memory {sizes}", flush=True)


def connect_silent(options: RoleOptions, port: str) -> rpc.Client:
    """A client that says hello only when it is told to."""
    client = rpc.make_client(
        options.address(port),
        "peer",
        peer=port,
        transport=options.transport,
        protocol=protocol.VERSION,
        key_file=key_file(options),
        max_inflight=200,
    )
    assert client.wait_connected(WAIT_S)
    return client


def sample(replay: rpc.Client) -> dict[str, np.ndarray]:
    return replay.call(protocol.SAMPLE_BATCH["report"], None, meta={"wait_s": WAIT_S}).result(WAIT_S)


def check_served(fleet: RunningFleet, clients: dict[str, rpc.Client], peer: Peer) -> None:
    """Every method does what it is asked; saving is seen in the next checkpoint, which all roles add to."""
    peer.first_env = FIRST_ENV + 2 * ENVS  # the wrong messages have given the others to whoever they said
    for port, client in clients.items():
        messages = peer.messages(port)
        hello = messages.pop(protocol.HELLO)  # first of all, as everybody says it
        valid = [message for method, message in messages.items() if method != protocol.SAVE]
        for part in ([hello], [_patient(message) for message in valid]):
            outcomes = collect(send(client, part), WAIT_S)
            assert len(outcomes["done"]) == len(part), outcomes
    newest = Checkpoints(fleet.logdir).latest()
    last = newest.name if newest else ""

    def is_saved() -> bool:
        checkpoint = Checkpoints(fleet.logdir).latest()
        return checkpoint is not None and checkpoint.name != last and set(checkpoint.parts) == set(PORTS.values())

    eventually(is_saved, "a checkpoint with a part of every role")


def _patient(message: Message) -> Message:
    return message._replace(meta={**message.meta, "wait_s": WAIT_S}) if "wait_s" in message.meta else message
