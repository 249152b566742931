"""Every method of every role under peers that have the key but send wrong messages: nobody ends, all go on serving."""

import collections
import contextlib
from pathlib import Path

import numpy as np
import pytest

from dreamfleet import rpc
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.roles import protocol
from dreamfleet.testing import CountingAgent, CountingEnv
from tests.fleet import DEADLINE_S, RunningFleet, count_rebuilds, eventually, make_args, running_fleet
from tests.fuzz.hostile import seed_of
from tests.fuzz.wrong_messages import Message, Peer, make_wrong, send

MESSAGES = {"auto": 45_000, "zmq": 45_000, "portal": 10_000}  # 100,000 in all; a portal client is slow
BURST = 10  # of each method at a time
WAIT_S = DEADLINE_S
MEMORY_BYTES = 48 << 20  # what a role may take in addition: a kilobyte that every message leaves behind is no less
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
# Portal is slow, and its buffers are still growing after as few messages as the small variant has.
@pytest.mark.parametrize("transport", ["auto", "zmq", pytest.param("portal", marks=pytest.mark.chaos)])
def test_wrong_messages_with_the_right_key(transport, share, tmp_path):
    place = "ipc:{auto}" if transport == "auto" else "localhost:{auto}"
    addresses = {f"{port}_addr": rpc.resolve_addr(place, transport) for port in PORTS}
    args = make_args(tmp_path, steps=0, transport=transport, max_restarts=0, storage="ram", **addresses)
    with running_fleet(args, TolerantAgent, CountingEnv) as fleet, contextlib.ExitStack() as stack:
        fleet.wait_step(200)
        clients = {port: stack.enter_context(connect(addresses[f"{port}_addr"], port, args)) for port in PORTS}
        rng = np.random.default_rng(seed_of(transport))
        peer = Peer(rng, sample(clients["replay"]))
        before, at_start = pids(fleet), fleet.step()
        count, outcomes, memory = int(share * MESSAGES[transport]), collections.Counter(), {}
        failures: dict[str, int] = collections.Counter()
        while sum(outcomes.values()) < count:
            for port, client in clients.items():
                batch = [make_wrong(rng, message) for _ in range(BURST) for message in peer.messages(port).values()]
                for outcome, messages in send(client, batch, WAIT_S).items():
                    outcomes[outcome] += len(messages)
                    if outcome == "failed":
                        failures.update(messages)
            assert pids(fleet) == before, "a role was restarted"
            if not memory and sum(outcomes.values()) > count / 4:
                memory = own_memory(fleet)
        grown = {role: size - memory[role] for role, size in own_memory(fleet).items()}
        print(f"{transport}: {dict(outcomes)}, memory grew by {grown}")
        for line, number in failures.items():
            print(f"{number} x {line}")
        check_served(fleet, clients, peer)
        fleet.wait_step(max(at_start, fleet.step()) + 50)
        assert outcomes["refused"] > outcomes["done"], "the messages are as wrong as they should be"
        assert not failures, "what is wrong is refused at the door, and not found out by falling over it"
        assert max(grown.values()) < MEMORY_BYTES, grown
        assert pids(fleet) == before
        fleet.kill_to_end("env0")
    assert count_rebuilds(tmp_path) == 0, "an environment got an action that was not its own"


def connect(addr: str, port: str, args) -> rpc.Client:
    key_file = Path(args.logdir) / "run.key"
    client = rpc.make_client(
        addr,
        "peer",
        peer=port,
        transport=args.transport,
        protocol=protocol.VERSION,
        key_file=key_file if key_file.exists() else None,
        max_inflight=200,
    )
    assert client.wait_connected(WAIT_S)
    return client


def sample(replay: rpc.Client) -> dict[str, np.ndarray]:
    return replay.call(protocol.SAMPLE_BATCH["report"], None, meta={"wait_s": WAIT_S}).result(WAIT_S)


def check_served(fleet: RunningFleet, clients: dict[str, rpc.Client], peer: Peer) -> None:
    """Every method does what it is asked; saving is seen in the next checkpoint, which all roles add to."""
    for port, client in clients.items():
        valid = [message for method, message in peer.messages(port).items() if method != protocol.SAVE]
        outcomes = send(client, [_patient(message) for message in valid], WAIT_S)
        assert len(outcomes["done"]) == len(valid), outcomes
    newest = Checkpoints(fleet.logdir).latest()
    last = newest.name if newest else ""

    def is_saved() -> bool:
        checkpoint = Checkpoints(fleet.logdir).latest()
        return checkpoint is not None and checkpoint.name != last and set(checkpoint.parts) == set(PORTS.values())

    eventually(is_saved, "a checkpoint with a part of every role")


def _patient(message: Message) -> Message:
    return message._replace(meta={**message.meta, "wait_s": WAIT_S}) if "wait_s" in message.meta else message
