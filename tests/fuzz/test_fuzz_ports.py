"""Every server port of a running fleet under hostile peers: its own environments, as honest clients, do not notice."""

import contextlib
import itertools
import logging

import psutil
import pytest
import zmq

from dreamfleet import rpc
from dreamfleet.rpc.keys import load_key
from dreamfleet.testing import CountingAgent, CountingEnv
from tests.fleet import DEADLINE_S, count_rebuilds, make_args, running_fleet
from tests.fuzz.hostile import (
    LOCAL_GREETING,
    connect_raw,
    frame,
    frame_cases,
    greeting,
    message,
    raw_cases,
    seed_of,
    throw,
    throw_frames,
)
from tests.rpc.raw_peers import connect_peer

RAW_CASES, FRAME_CASES = 6_000, 24_000  # for each of the three ports
BURST = 200
MEMORY_BYTES = 300 << 20
METHODS = {
    "agent": ["act", "act_many"],
    "replay": ["add_batch", "sample_batch_train", "sample_batch_report", "sample_batch_eval", "update", "save"],
    "logger": ["add", "tran", "save"],
}
WAIT_S = DEADLINE_S


def memory_of(fleet, role: str) -> int:
    return psutil.Process(fleet.status()["roles"][role]["pid"]).memory_info().rss


@pytest.mark.distributed
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["ipc", "tcp"])
def test_ports_of_a_fleet(kind, share, tmp_path):
    roles = {"agent": "actor", "replay": "replay", "logger": "logger"}
    addresses = {
        f"{port}_addr": f"ipc:{tmp_path}/{port}" if kind == "ipc" else rpc.resolve_addr("localhost:{auto}", "zmq")
        for port in roles.values()
    }
    args = make_args(tmp_path / "run", steps=0, train_ratio=0.0, max_restarts=0, capacity=1000, **addresses)
    with running_fleet(args, CountingAgent, CountingEnv) as fleet:
        fleet.wait_step(100)
        before = {role: memory_of(fleet, role) for role in roles}
        for role, port in roles.items():
            addr, at_start = addresses[f"{port}_addr"], fleet.step()
            raw = raw_cases(seed_of(port))
            for number in range(int(share * RAW_CASES)):
                throw(addr, next(raw), is_patient=number % 3 > 0)
            frames = frame_cases(seed_of(role), METHODS[role])
            with contextlib.closing(connect_peer(addr, tmp_path / "run" / "run.key")) as peer:
                for _ in range(max(1, int(share * FRAME_CASES) // BURST)):
                    throw_frames(peer, list(itertools.islice(frames, BURST)))
            fleet.wait_step(at_start + 50)
        grown = {role: memory_of(fleet, role) - before[role] for role in roles}
        print(f"{kind}: {3 * share * (RAW_CASES + FRAME_CASES):.0f} cases, memory grew by {grown}")
        assert all(growth < MEMORY_BYTES for growth in grown.values()), grown
        for name in fleet.status()["roles"]:
            assert fleet.wait_role(name, lambda role: role["state"] == "running")["restarts"] == 0, fleet.status()
        fleet.kill_to_end("env0")
    assert count_rebuilds(tmp_path / "run") == 0, "an environment got an action that was not its own"


def test_a_portal_port(share, caplog):
    addr = rpc.resolve_addr("ipc:{auto}", "portal")
    server = rpc.make_server(addr, "server", transport="portal")
    server.bind("echo", lambda data: data)
    cases = int(share * RAW_CASES / 2)
    with server, rpc.make_client(addr, "client", peer="server", transport="portal") as client:
        before = psutil.Process().memory_info().rss
        for number, data in enumerate(itertools.islice(raw_cases(seed_of("portal port")), cases)):
            throw(addr, data)
            if number % 20 == 0:
                assert client.call("echo", number).result(WAIT_S) == number
        assert client.connections == 1
        assert psutil.Process().memory_info().rss - before < MEMORY_BYTES
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) < 20, "a peer that keeps misbehaving does not fill the log"


def test_strangers_show_up_once(share, tmp_path, caplog):
    """Peers with another key, or none: no answer, one line."""
    for name in ("run.key", "other.key"):
        rpc.make_key(tmp_path / name)
    addr = rpc.resolve_addr("localhost:{auto}", "zmq")
    server = rpc.make_server(addr, "server", key_file=tmp_path / "run.key")
    seen = []
    server.bind("echo", lambda data: seen.append(data))
    with server, rpc.make_client(addr, "friend", peer="server", key_file=tmp_path / "run.key") as friend:
        friend.call("echo", "friend").result(WAIT_S)
        context = zmq.Context()
        ours, other = (load_key(tmp_path / name, addr) for name in ("run.key", "other.key"))
        for _ in range(int(share * 2_000)):
            stranger = context.socket(zmq.DEALER)
            stranger.linger = 0
            stranger.curve_serverkey, stranger.curve_publickey, stranger.curve_secretkey = ours.public, *other
            stranger.connect(f"tcp://127.0.0.1:{addr.rpartition(':')[2]}")
            with contextlib.suppress(zmq.Again):  # refused already, after which there is nowhere to send to
                stranger.send(b"hello", zmq.DONTWAIT)
            assert not stranger.poll(1)
            stranger.close()
        for data in itertools.islice(raw_cases(seed_of("stranger")), int(share * 2_000)):
            throw(addr, data)
        friend.call("echo", "friend").result(WAIT_S)
        context.destroy(0)
    assert seen == ["friend", "friend"]
    lines = [record.message for record in caplog.records if "refused" in record.message]
    assert 1 <= len(lines) <= 4, lines  # one of each kind in half a minute


@pytest.mark.parametrize("size", [1 << 20, 1 << 30, 1 << 40])
@pytest.mark.parametrize("kind", ["ipc", "tcp"])
def test_what_is_announced_takes_no_memory(kind, size, tmp_path):
    """A stranger may name any size of message: memory is taken for what comes, not for what is named."""
    rpc.make_key(tmp_path / "run.key")
    addr = f"ipc:{tmp_path}/s" if kind == "ipc" else rpc.resolve_addr("localhost:{auto}", "zmq")
    server = rpc.make_server(addr, "server", key_file=tmp_path / "run.key")
    server.bind("echo", lambda data: data)
    curve = greeting(b"CURVE") + frame(b"x" * 1000, 4, size)
    data = LOCAL_GREETING + message(b"x" * 1000, sizes=[size]) if kind == "ipc" else curve
    with server, contextlib.ExitStack() as stack:
        before = psutil.Process().memory_info().rss
        for _ in range(50):
            raw = stack.enter_context(connect_raw(addr))
            raw.sendall(data)
        with rpc.make_client(addr, "friend", peer="server", key_file=tmp_path / "run.key") as friend:
            assert friend.call("echo", 1).result(WAIT_S) == 1
        assert psutil.Process().memory_info().rss - before < 50 << 20
