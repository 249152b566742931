"""Throughput, latency, idle cost and start-up of the fleet, over our engines and over portal (the baseline)."""

import argparse
import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from benchmarks.report import Case, finish, parse_args
from dreamfleet import rpc

PATIENCE_S = 600.0  # for a fleet to get going
TURNS = 3  # of ours and the baseline, as the speed of a machine changes; the median counts
KEY_VARIABLE = "DREAMFLEET_KEY_FILE"
OBS = {"image": np.zeros((64, 64, 3), np.uint8), "reward": np.float32(0), "is_first": False, "is_last": False}


def main() -> None:
    parser = parse_args(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement")
    parser.add_argument("--role", help=argparse.SUPPRESS)  # this file is also the processes that it measures
    parser.add_argument("--addr", help=argparse.SUPPRESS)
    parser.add_argument("--transport", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        ROLES[args.role](args.addr, args.transport, args.seconds)
    else:
        finish("transport", measure(args.seconds), args.json)


def measure(seconds: float) -> list[Case]:
    """All cases, ours and baseline in turns."""
    results: dict[str, dict[str, float]] = {}
    for transport in ("auto", "portal"):
        results[transport] = {
            **measure_server(transport, seconds),
            **measure_idle(transport, seconds),
            **measure_start(transport),
        }
    pipelines = measure_pipelines(seconds)
    units = {
        "server 8 clients batch 4": ("req/s", "higher"),
        "server p50 ms": ("ms", "lower"),
        "server p99 ms": ("ms", "lower"),
        "idle server cpu %": ("%", "lower"),
        "idle client cpu %": ("%", "lower"),
        "16 envs ready s": ("s", "lower"),
        "first step s": ("s", "lower"),
    }
    tcp = measure_server("zmq", seconds)
    cases = [Case(name, *unit, results["auto"][name], results["portal"][name]) for name, unit in units.items()]
    over_tcp = [
        Case(f"{name}, tcp with curve", *units[name], value, results["portal"][name]) for name, value in tcp.items()
    ]
    return [*pipelines, *cases, *over_tcp]


def measure_pipelines(seconds: float) -> list[Case]:
    """Whole fleets, with replay in memory and on disk; ours on one machine and over TCP with CURVE, against portal."""
    cases = []
    for (workers, envs_per_worker), storage in itertools.product(((8, 1), (2, 32)), ("ram", "disk")):
        rates: dict[str, list[float]] = {"auto": [], "zmq": [], "portal": []}
        for _, (transport, measured) in itertools.product(range(TURNS), rates.items()):
            measured.append(measure_pipeline(transport, workers, envs_per_worker, storage, seconds))
        local, tcp, baseline = map(statistics.median, rates.values())
        name = f"pipeline {workers}x{envs_per_worker} {storage}"
        cases.append(Case(name, "env steps/s", "higher", local, baseline))
        cases.append(Case(f"{name}, tcp with curve", "env steps/s", "higher", tcp, baseline))
    return cases


class Item:
    """A request of the batched server: one observation."""

    rows = 1
    group = 0

    def __init__(self, data: dict):
        self.data = data


def measure_server(transport: str, seconds: float) -> dict[str, float]:
    """Requests per second and latency of a batched server with 8 client processes."""
    addr, key_file = rpc.resolve_addr("ipc:{auto}", transport), make_key_file()
    server = rpc.make_server(addr, "server", transport=transport, key_file=key_file)

    def work(items: list[Item]) -> tuple[list[dict], None]:
        np.stack([item.data["image"] for item in items])
        return [{"action": np.int32(0)} for _ in items], None

    server.bind_batched({"act": Item}, work, batch=4, max_wait_ms=5.0)
    with server, child_processes("client", server.addr, transport, seconds, count=8, key_file=key_file) as children:
        latencies = [json.loads(child.communicate()[0]) for child in children]
    rpc.remove_addr(addr)
    shutil.rmtree(key_file.parent)
    flat = np.concatenate([np.array(values) for values in latencies])
    return {
        "server 8 clients batch 4": len(flat) / seconds,
        "server p50 ms": float(np.percentile(flat, 50)),
        "server p99 ms": float(np.percentile(flat, 99)),
    }


def make_key_file() -> Path:
    """A fresh key, for the transports that need one, in a directory of its own."""
    path = Path(tempfile.mkdtemp(prefix="dreamfleet-bench-")) / "run.key"
    rpc.make_key(path)
    return path


def run_client(addr: str, transport: str, seconds: float) -> None:
    """Calls one after the other for a while; prints the latencies in milliseconds."""
    options = {"transport": transport, "key_file": os.environ.get(KEY_VARIABLE)}
    client = rpc.make_client(addr, "client", peer="server", max_inflight=1, threaded=False, **options)
    for _ in range(3):
        client.call("act", OBS).result()
    print("ready", flush=True)
    sys.stdin.readline()
    latencies = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        client.call("act", OBS).result()
        latencies.append(1000 * (time.perf_counter() - start))
    print(json.dumps(latencies))
    client.close()


def measure_idle(transport: str, seconds: float) -> dict[str, float]:
    """Processor use of a connected server and client that have nothing to do."""
    addr = rpc.resolve_addr("ipc:{auto}", transport)
    with (
        child_processes("idle-server", addr, transport, seconds, count=1) as (server,),
        child_processes("idle-client", addr, transport, seconds, count=1) as (client,),
    ):
        processes = {"server": psutil.Process(server.pid), "client": psutil.Process(client.pid)}
        before = {name: process.cpu_times() for name, process in processes.items()}
        threading.Event().wait(seconds)
        after = {name: process.cpu_times() for name, process in processes.items()}
        for child in (client, server):
            child.communicate("\n")
    rpc.remove_addr(addr)
    used = {name: sum(after[name][:2]) - sum(before[name][:2]) for name in processes}
    return {f"idle {name} cpu %": 100 * value / seconds for name, value in used.items()}


def run_idle_server(addr: str, transport: str, seconds: float) -> None:
    """Serves until its input ends."""
    server = rpc.make_server(addr, "server", transport=transport)
    server.bind_batched({"act": Item}, lambda items: ([{} for _ in items], None), batch=1, max_wait_ms=5.0)
    with server:
        print("ready", flush=True)
        sys.stdin.readline()  # the go-ahead of the parent
        sys.stdin.readline()


def run_idle_client(addr: str, transport: str, seconds: float) -> None:
    """Stays connected until its input ends."""
    with rpc.make_client(addr, "client", peer="server", transport=transport) as client:
        client.call("act", OBS).result()
        print("ready", flush=True)
        sys.stdin.readline()
        sys.stdin.readline()


@contextlib.contextmanager
def child_processes(
    role: str, addr: str, transport: str, seconds: float, count: int, key_file: Path | None = None
) -> Iterator[list]:
    """Processes of this file in a role, let go together when all are ready."""
    command = [sys.executable, "-m", "benchmarks.transport", "--role", role, "--addr", addr, "--transport", transport]
    options: dict = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    options["env"] = {**os.environ, KEY_VARIABLE: str(key_file or "")}
    children = [subprocess.Popen([*command, "--seconds", str(seconds)], **options) for _ in range(count)]
    try:
        for child in children:
            assert child.stdout and child.stdout.readline().strip() == "ready"
        for child in children:
            assert child.stdin
            child.stdin.write("\n")
            child.stdin.flush()
        yield children
    finally:
        for child in children:
            child.kill()
            child.wait()


def measure_pipeline(
    transport: str, workers: int, envs_per_worker: int, storage: str, seconds: float, launcher: str = "local"
) -> float:
    """Environment steps per second of a whole fleet with the random agent, images and train ratio 1."""
    envs = workers * envs_per_worker
    with running_fleet(transport, envs, envs_per_worker, "dummy_image", storage, launcher) as fleet:
        fleet.wait_step(20 * workers * envs_per_worker)
        fleet.wait_ready(workers)
        threading.Event().wait(1.0)
        start, first = time.monotonic(), fleet.step()
        threading.Event().wait(seconds)
        return (fleet.step() - first) / (time.monotonic() - start)


def measure_start(transport: str, launcher: str = "local") -> dict[str, float]:
    """Seconds until 16 environment processes are ready, and until the fleet has taken its first step."""
    start = time.monotonic()
    with running_fleet(transport, 16, 1, "dummy_vector", "ram", launcher) as fleet:
        fleet.wait_step(1)
        first = time.monotonic() - start
        fleet.wait_ready(16)
        return {"first step s": first, "16 envs ready s": time.monotonic() - start}


class Fleet:
    """A fleet that runs in a process of its own, seen through its log directory."""

    def __init__(self, logdir: Path, process: subprocess.Popen):
        self.logdir = logdir
        self._process = process

    def pids(self) -> dict[str, int]:
        """The process of each role."""
        return {name: role["pid"] for name, role in self._roles().items()}

    def step(self) -> int:
        counts = self.logdir / "replay" / "counts"
        return read_inserts(counts) if counts.exists() else 0

    def wait_step(self, step: int) -> None:
        self._wait(lambda: self.step() >= step)

    def wait_ready(self, envs: int) -> None:
        """Until every environment process has reported that it runs."""

        def is_ready() -> bool:
            with contextlib.suppress(OSError, ValueError):
                roles = self._roles()
                return sum(r["state"] == "running" for name, r in roles.items() if name.startswith("env")) >= envs
            return False

        self._wait(is_ready)

    def _roles(self) -> dict[str, dict]:
        return json.loads((self.logdir / "status.json").read_text())["roles"]

    def _wait(self, condition) -> None:
        pause = threading.Event()
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self._process.poll() is None, "the fleet has ended: see its message above"
            assert time.monotonic() < deadline, f"the fleet did not get going within {PATIENCE_S:g} s"
            pause.wait(0.02)


def read_inserts(path: Path) -> int:
    from dreamfleet.roles.replay.counts import CountsFile

    file = CountsFile(path)
    try:
        return file.read().inserts
    finally:
        file.close()


@contextlib.contextmanager
def running_fleet(
    transport: str,
    envs: int,
    envs_per_worker: int,
    task: str,
    storage: str,
    launcher: str = "local",
    train_ratio: float = 1.0,
    capacity: int = 20_000,
) -> Iterator[Fleet]:
    """A fleet with the random agent in the background, stopped and removed at the end."""
    logdir = Path(tempfile.mkdtemp(prefix="dreamfleet-bench-"))
    options = {
        "task": task,
        "agent": "dreamfleet.agent.random:RandomAgent",
        "logdir": str(logdir),
        "replay.capacity": capacity,
        "replay.storage": storage,
        "run.envs": envs,
        "run.envs_per_worker": envs_per_worker,
        "run.launcher": launcher,
        "run.transport": transport,
        "run.train_ratio": train_ratio,
        "run.save_every": 0.0,
        "run.report_every": 0.0,
    }
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    command = [sys.executable, "-m", "dreamfleet", "train", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield Fleet(logdir, process)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(logdir)


ROLES = {"client": run_client, "idle-server": run_idle_server, "idle-client": run_idle_client}

if __name__ == "__main__":
    main()
