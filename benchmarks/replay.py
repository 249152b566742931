"""The replay store: inserts, samples, updates and opening, beside a plain memory copy and a replay of dicts in chunks.

Steps are 64x64x3 uint8 + 1024 f32 + 12 f32 + reward and flags; batches are 16 x 65, inserts come from 8 environments.
"""

import argparse
import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chunk_replay import ChunkReplay
from benchmarks.report import Case, finish, parse_args
from dreamfleet import rpc
from dreamfleet.launch.combined import KEEP_MEMORY, ONE_THREAD
from dreamfleet.options import read_args
from dreamfleet.options.replay import SamplingOptions
from dreamfleet.replay import Store, consecutive_batches
from dreamfleet.roles.learner.batches import parallel_stream
from dreamfleet.roles.replay.role import ReplayRole

BATCH, LENGTH, ENVS = 16, 65, 8
STEPS = 50_000
ROUNDS = 5
PRIORITISED = SamplingOptions(uniform=0.0, priority=1.0)
LEFT_ALONE = SamplingOptions(uniform=0.0, priority=1.0, priority_zero=False)


def main() -> None:
    parser = parse_args(__doc__ or "")
    parser.add_argument("--directory", type=Path, help="where the stores on disk are made (default: the temporary one)")
    parser.add_argument("--soak", type=int, default=0, metavar="STEPS", help="add this many steps first, as in an hour")
    parser.add_argument("--million", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)  # this file is also the server that it measures
    args = parser.parse_args()
    if os.environ.items() >= {**KEEP_MEMORY, **ONE_THREAD}.items():
        if args.serve:
            serve(*args.serve)
            return
        if args.million:
            print(json.dumps(measure_million()))
            return
        with temporary(args.directory) as directory:
            soaked = soak(directory, args.soak) if args.soak else []
            finish("replay", [*measure(directory), *soaked], args.json)
        return
    # As the launcher starts the replay: the allocator reads its settings when a process begins.
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.replay", *sys.argv[1:]], _environment())


def _environment() -> dict[str, str]:
    return {**os.environ, **KEEP_MEMORY, **ONE_THREAD}


@contextlib.contextmanager
def temporary(parent: Path | None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="dreamfleet-replay-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def measure(directory: Path) -> list[Case]:
    """All cases, the baseline first so that both find the machine's memory in use."""
    baseline = measure_baseline(directory / "chunks")
    disk, ram = measure_store(directory / "disk"), measure_store(None)
    prioritised, uniform = measure_priorities()
    million = json.loads(subprocess.check_output([sys.executable, "-m", "benchmarks.replay", "--million"]))
    served = {kind: measure_server(directory, kind) for kind in ("rows", "references", "baseline")}
    per_s = ("per s", "higher")
    return [
        Case("insert disk", "steps/s", "higher", disk["insert"], baseline["insert"]),
        Case("insert ram", "steps/s", "higher", ram["insert"], baseline["insert"]),
        Case("sample uniform", *per_s, disk["sample"], baseline["sample"]),
        Case("sample uniform ram", *per_s, ram["sample"], baseline["sample"]),
        Case("sample memcpy fraction disk", "of limit", "higher", disk["sample"] / disk["copy"]),
        Case("sample memcpy fraction ram", "of limit", "higher", ram["sample"] / ram["copy"]),
        Case("sample prioritised", *per_s, prioritised, baseline["prioritised"]),
        Case("sample prioritised of uniform", "of uniform", "higher", prioritised / uniform),
        Case("priority update", *per_s, million["update"], baseline["prioritise"]),
        Case("state update", *per_s, disk["update"], baseline["update"]),
        Case("open 50k s", "s", "lower", disk["open"], baseline["open"]),
        Case("open 1m small s", "s", "lower", million["open"]),
        Case("memory of 1m steps", "MB", "lower", million["memory"]),
        Case("server sample rows", *per_s, served["rows"], served["baseline"]),
        Case("server sample references", *per_s, served["references"], served["rows"]),
    ]


def make_batch(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """One step of each environment."""
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (rows, 64, 64, 3)).astype(np.uint8),
        "deter": rng.normal(size=(rows, 1024)).astype(np.float32),
        "action": rng.normal(size=(rows, 12)).astype(np.float32),
        "reward": np.zeros(rows, np.float32),
        **{name: np.zeros(rows, bool) for name in ("is_first", "is_last", "is_terminal")},
    }


def best_rates(*fns: Callable[[], Any], calls: int, rounds: int = ROUNDS) -> list[float]:
    """Calls per second of each, in turn, in the best of several rounds: others may use the machine too."""
    best = [0.0] * len(fns)
    for _ in range(rounds):
        for i, fn in enumerate(fns):
            start = time.perf_counter()
            for _ in range(calls):
                fn()
            best[i] = max(best[i], calls / (time.perf_counter() - start))
    return best


def best_rate(fn: Callable[[], Any], calls: int, rounds: int = ROUNDS) -> float:
    return best_rates(fn, calls=calls, rounds=rounds)[0]


def insert_rate(replay: Any, steps: int, rounds: int = ROUNDS) -> float:
    batch, workers = make_batch(ENVS), list(range(ENVS))
    return ENVS * best_rate(lambda: replay.add_many(batch, workers), steps // rounds // ENVS, rounds)


def make_copy() -> Callable[[], None]:
    """Copies as many bytes as a batch has, from anywhere in as much memory as a store has: the limit for samples."""
    size = sum(value.nbytes for value in make_batch(1).values()) * BATCH * LENGTH
    source, target = np.ones(40 * size, np.uint8), np.ones(size, np.uint8)
    rng = np.random.default_rng(0)

    def copy() -> None:
        start = int(rng.integers(0, 39 * size))
        target[:] = source[start : start + size]

    return copy


def measure_baseline(directory: Path) -> dict[str, float]:
    replay = ChunkReplay(LENGTH, STEPS)
    insert_rate(replay, STEPS)
    results = {"insert": insert_rate(replay, 2 * STEPS, rounds=20), **measure_chunks(replay)}
    replay.save(directory)
    del replay
    gc.collect()
    start = time.perf_counter()
    ChunkReplay(LENGTH, STEPS).load(directory)
    results["open"] = time.perf_counter() - start
    shutil.rmtree(directory)
    gc.collect()
    return results


def measure_chunks(replay: ChunkReplay) -> dict[str, float]:
    items = replay.draw(BATCH)
    priorities = np.random.default_rng(0).random((BATCH, LENGTH - 1)).astype(np.float32)
    states = np.zeros((BATCH, LENGTH - 1, 1024), np.float32)

    def prioritise() -> None:
        replay.prioritise(items, priorities)
        replay.weights()  # the part of the work that waits for the next sample

    return {
        "sample": best_rate(lambda: replay.sample(BATCH), 20),
        "prioritised": best_rate(lambda: replay.sample_prioritised(BATCH), 3),
        "prioritise": best_rate(prioritise, 10),
        "update": best_rate(lambda: replay.update(items, "deter", states), 20),
    }


def measure_store(directory: Path | None) -> dict[str, float]:
    """A store that is filled twice over, so that old segments make way for new ones."""
    with Store(LENGTH, STEPS, directory=directory) as store:
        insert_rate(store, STEPS)
        results = {"insert": insert_rate(store, 2 * STEPS, rounds=20)}
        store.sync()  # what the disk is still busy with belongs to the inserts
        results["copy"], results["sample"] = best_rates(make_copy(), lambda: store.sample(BATCH), calls=30, rounds=10)
        data = store.sample(BATCH)
        update = {key: np.ascontiguousarray(data[key][:, 1:]) for key in ("stepid", "deter")}
        results["update"] = best_rate(lambda: store.update(update), 50)
    if directory:
        start = time.perf_counter()
        with Store(LENGTH, STEPS, directory=directory):
            results["open"] = time.perf_counter() - start
        shutil.rmtree(directory)
    return results


def measure_priorities() -> list[float]:
    """Samples by priority, which are zeroed and given anew all the time, and uniform ones from a store like it."""
    with Store(LENGTH, 20_000, sampling=PRIORITISED) as store, Store(LENGTH, 20_000) as uniform:
        for replay in (store, uniform):
            insert_rate(replay, 20_000)
        data = [store.sample(BATCH)["stepid"] for _ in range(100)]
        for ids in data:
            store.update({"stepid": ids, "priority": np.ones((BATCH, LENGTH), np.float32)})
        return best_rates(lambda: store.sample(BATCH), lambda: uniform.sample(BATCH), calls=30, rounds=10)


def measure_million() -> dict[str, float]:
    """A million small steps: priority updates, the process's own memory, and opening."""
    rng = np.random.default_rng(0)
    with temporary(None) as directory:
        with Store(LENGTH, 1_000_000, directory=directory, sampling=LEFT_ALONE) as store:
            fill_small(store, 1_000_000)
            ids = [store.sample(BATCH)["stepid"][:, 1:] for _ in range(20)]

            def update() -> None:
                store.update({"stepid": ids[rng.integers(20)], "priority": rng.random((BATCH, LENGTH - 1), np.float32)})
                store.sample(1)  # with the part of the work that waits for the next sample

            results = {"update": best_rate(update, 100), "memory": own_memory_mb()}
            assert len(store) > 990_000, len(store)
        start = time.perf_counter()
        with Store(LENGTH, 1_000_000, directory=directory, sampling=PRIORITISED):
            return {**results, "open": time.perf_counter() - start}


def fill_small(store: Store, steps: int) -> None:
    rows = 64 * ENVS
    batch = {
        "vector": np.zeros((rows, 16), np.float32),
        "reward": np.zeros(rows, np.float32),
        **{name: np.zeros(rows, bool) for name in ("is_first", "is_last")},
    }
    workers = list(range(ENVS)) * 64
    for _ in range(-(-steps // rows)):
        store.add_many(batch, workers)


def own_memory_mb() -> float:
    """Memory of this process that is not a file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1000


def measure_server(directory: Path, kind: str) -> float:
    """Batches per second that a learner in this process gets from a replay in another."""
    addr = rpc.resolve_addr("ipc:{auto}", "auto")
    command = [sys.executable, "-m", "benchmarks.replay", "--serve", addr, str(directory / kind)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment())
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        client = rpc.make_client(addr, "learner", peer="replay")
        caller: Any = client if kind == "references" else WithoutReader(client)
        batches = parallel_stream(caller, "train")
        best_rate(lambda: next(batches), 50, 1)
        rate = best_rate(lambda: next(batches), 50)
        client.close()
        return rate
    finally:
        process.kill()
        process.wait()
        rpc.remove_addr(addr)


class WithoutReader:
    """A client that does not say where it is, as one on another machine."""

    def __init__(self, client: rpc.Client):
        self._client, self.session = client, client.session

    def call(self, method: str, meta: dict, **options: Any) -> rpc.Future:
        return self._client.call(method, meta={"wait_s": meta["wait_s"]}, **options)


def serve(addr: str, directory: str) -> None:
    """Serves batches until it is killed."""
    is_baseline = Path(directory).name == "baseline"
    replay: Any = ChunkReplay(LENGTH, STEPS) if is_baseline else Store(LENGTH, 20_000, directory=f"{directory}/train")
    insert_rate(replay, 20_000)
    if isinstance(replay, Store):
        replay.sync()

    def make_stream(replay: Any, mode: str) -> Iterator[dict]:
        return consecutive_batches(replay, mode, batch_size=BATCH, length=LENGTH - 1, consec=1, context=1)

    options = {"logdir": directory, "batch_size": BATCH, "batch_length": LENGTH - 1, "train_ratio": 0.0}
    import elements

    role = ReplayRole(replay, replay, make_stream, read_args(elements.Config(options)))
    server = rpc.make_server(addr, "replay")
    for method, fn in role.methods().items():
        server.bind(method, fn, takes_meta=True)
    with server:
        print("ready", flush=True)
        sys.stdin.read()


def soak(directory: Path, steps: int) -> list[Case]:
    """Many turnovers of a small store, with samples and updates in between: how much memory and disk grow."""
    cases = []
    for name, place in (("disk", directory / "soak"), ("ram", None)):
        with Store(LENGTH, 50_000, directory=place, sampling=SamplingOptions(1, 1, 1), sync_every=5.0) as store:
            fill_small(store, 150_000)
            memory, size = [], []
            for _ in range(20):
                fill_small(store, steps // 20)
                for _ in range(20):
                    data = store.sample(BATCH)
                    store.update({"stepid": data["stepid"], "priority": data["reward"] + 1})
                memory.append(own_memory_mb())
                files = place.glob("*.segment") if place else ()
                size.append(sum(path.stat().st_size for path in files) / 1e6)
        cases.append(Case(f"soak {name} memory growth", "MB", "lower", max(memory[10:]) - max(memory[:10])))
        if place:
            cases.append(Case("soak disk growth", "MB", "lower", max(size[10:]) - max(size[:10])))
    return cases


if __name__ == "__main__":
    main()
