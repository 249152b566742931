"""Train step and policy latency of the agent against the reference's figures, scaled by a matmul of the same run."""

import argparse
import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from benchmarks.report import Case, finish, parse_args
from dreamfleet.launch.combined import agent_environ

REFERENCE_MATMUL_MS = 107.0
# case: size, kind of observation, milliseconds of the reference on a machine whose matmul takes the time above
TRAIN = {
    "train 1m vector ms": ("1m", "vector", 926.0),
    "train 1m image ms": ("1m", "image", 7027.0),
    "train 12m vector ms": ("12m", "vector", 6399.0),
}
POLICY_REFERENCE_MS = 2.9
BATCH, LENGTH = 16, 64


def main() -> None:
    parser = parse_args(__doc__ or "")
    parser.add_argument("--repeats", type=int, default=8, help="train steps of each case; the median counts")
    parser.add_argument("--only", nargs="*", help="names of the cases to measure")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)  # this file is also the process that it measures
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure_agent(args.child[0], args.child[1], args.child[2], args.repeats)))
    else:
        finish("learner", measure(args.repeats, args.only), args.json)


def measure(repeats: int, only: list[str] | None) -> list[Case]:
    """All cases, each size in a process of its own."""
    cases, matmuls = [], []
    with tempfile.TemporaryDirectory() as cache:
        for case, (size, kind, reference) in TRAIN.items():
            if only and case not in only:
                continue
            cold = run_child(size, kind, cache, repeats)
            scale = cold["matmul_ms"] / REFERENCE_MATMUL_MS
            matmuls.append(cold["matmul_ms"])
            cases.append(Case(case, "ms", "lower", cold["train_ms"], reference * scale))
            cases.append(Case(case.replace("train", "peak memory").replace("ms", "MB"), "MB", "lower", cold["peak_mb"]))
            if case == "train 1m vector ms":
                warm = run_child(size, kind, cache, repeats)
                name = "policy 1m vector batch 8 ms"
                cases.append(Case(name, "ms", "lower", warm["policy_ms"], POLICY_REFERENCE_MS * scale))
                cases.append(Case("policy p50 while training ms", "ms", "lower", warm["busy_p50_ms"]))
                cases.append(Case("policy p99 while training ms", "ms", "lower", warm["busy_p99_ms"]))
                cases.append(Case("compile cold s", "s", "lower", cold["compile_s"]))
                cases.append(Case("compile warm s", "s", "lower", warm["compile_s"]))
                cases.append(Case("warm start s", "s", "lower", warm["first_action_s"]))
    return [*cases, Case("matmul 2048 f32 ms", "ms", "lower", statistics.median(matmuls), REFERENCE_MATMUL_MS)]


def run_child(size: str, kind: str, cache: str, repeats: int) -> dict[str, float]:
    """Measures one agent in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.learner", "--repeats", str(repeats), "--child", size, kind, cache]
    # Settings of the allocator act only at exec: the launcher gives the same to the agent's process.
    environ = {**os.environ, **agent_environ(), "STARTED": str(time.time())}
    result = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])


def measure_agent(size: str, kind: str, cache: str, repeats: int) -> dict[str, float]:
    """Start-up, policy latency and train step of an agent, through its public methods."""
    import elements
    import jax
    import numpy as np

    from dreamfleet.agent.dreamer import Dreamer
    from dreamfleet.options import agent_options, load_options

    options = {"dreamer.size": size, "batch_size": BATCH, "batch_length": LENGTH, "jax.cache": cache}
    config = agent_options(load_options(options))
    spaces = {"vector": elements.Space(np.float32, (24,)), "image": elements.Space(np.uint8, (64, 64, 3))}
    flags = {key: elements.Space(bool) for key in ("is_first", "is_last", "is_terminal")}
    obs_space = {kind: spaces[kind], "reward": elements.Space(np.float32), **flags}
    act_space = {"action": elements.Space(np.float32, (6,), -1, 1), "reset": elements.Space(bool)}
    agent = Dreamer(obs_space, act_space, config)
    obs = {key: np.zeros((8, *space.shape), space.dtype) for key, space in obs_space.items()}
    act = functools.partial(agent.policy_slots, np.arange(8, dtype=np.int32), np.zeros(8, bool), obs, "train")
    agent.init_slots(8)
    act()
    first_action_s = time.time() - float(os.environ["STARTED"])
    batch = make_batch({**obs_space, **act_space}, agent)
    carry = agent.init_train(BATCH)
    start = time.perf_counter()
    carry, _, _ = agent.train(carry, batch)
    agent.save()
    compile_s = time.perf_counter() - start
    times, matmuls, multiply = [], [], make_matmul()
    for _ in range(repeats):  # in turns, as the speed of a shared machine changes from one second to the next
        start = time.perf_counter()
        carry, _, _ = agent.train(carry, batch)
        jax.block_until_ready(carry)
        times.append(time.perf_counter() - start)
        start = time.perf_counter()
        multiply()
        matmuls.append(time.perf_counter() - start)
    agent.save()
    latencies = time_calls(act, 300)
    busy = time_while_training(agent, carry, batch, act)
    return {
        "train_ms": 1000 * float(np.median(times)),
        "policy_ms": 1000 * float(np.median(latencies)),
        "busy_p50_ms": 1000 * float(np.percentile(busy, 50)),
        "busy_p99_ms": 1000 * float(np.percentile(busy, 99)),
        "matmul_ms": 1000 * float(np.median(matmuls)),
        "compile_s": compile_s,
        "first_action_s": first_action_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def time_calls(call: Callable[[], object], count: int, pause_s: float = 0.0) -> list[float]:
    """Seconds that each of `count` calls takes, with a pause in between."""
    pause, times = threading.Event(), []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
        pause.wait(pause_s)
    return times


def time_while_training(agent, carry, batch: dict, act: Callable[[], object]) -> list[float]:
    """Seconds that actions take while another thread trains without a break."""
    stop = threading.Event()

    def train() -> None:
        state = carry
        while not stop.is_set():
            state, _, _ = agent.train(state, batch)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        return time_calls(act, 400, pause_s=0.01)
    finally:
        stop.set()
        thread.join()


def make_batch(spaces: dict, agent) -> dict:
    """Random rows of every key, as replay would send them, with the states of an initial carry."""
    import numpy as np

    rng = np.random.default_rng(0)
    shape = (BATCH, LENGTH + 1)
    carry = agent.init_policy(1)
    batch = {key: _random(rng, space, shape) for key, space in spaces.items() if key != "reset"}
    batch["consec"] = np.zeros(shape, np.int32)
    batch["stepid"] = np.zeros((*shape, 20), np.uint8)
    batch["dyn/deter"] = np.zeros((*shape, carry["deter"].shape[1]), np.float16)
    batch["dyn/stoch"] = np.zeros((*shape, carry["stoch"].shape[1]), np.uint8)
    return batch


def _random(rng, space, shape: tuple):
    shape = (*shape, *space.shape)
    if space.dtype == bool:
        return rng.random(shape) < 0.01
    return (
        rng.integers(0, 256, shape).astype(space.dtype)
        if space.discrete
        else rng.normal(size=shape).astype(space.dtype)
    )


def make_matmul() -> Callable[[], object]:
    """A product of two 2048 x 2048 matrices, ready to run."""
    import jax

    x = jax.random.normal(jax.random.key(0), (2048, 2048))
    multiply = jax.jit(lambda x: x @ x)
    multiply(x).block_until_ready()
    return lambda: multiply(x).block_until_ready()


if __name__ == "__main__":
    main()
