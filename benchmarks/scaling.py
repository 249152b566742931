"""What one trainer serves: simulated workers, which take no time for their environments, ask it for actions.

The trainer is a real fleet with the random agent, training off. Workers are clients in a few processes, each with
one message on the way. Of every role the processor time of a step is measured, and from it the rate at which it
would need a whole core: with fast environments and enough machines for them, the lowest of these is the wall.
"""

import argparse
import contextlib
import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from benchmarks.report import Case, finish, parse_args
from benchmarks.transport import Fleet, running_fleet

TRANSPORTS = {"auto": "unix sockets", "zmq": "tcp with curve"}
ENVS = (100, 1_000, 10_000)
PER_WORKER = 32
BYTES = 1 << 14  # of an observation
BYTES_VARIABLE = "SCALING_BYTES"  # by which all processes know it
FIRST_ENV = 1_000_000  # beyond those of the fleet
ROLES = ("agent", "replay", "logger")
CAPACITY = 1_500_000  # room for a sequence of each of the most environments
WARM_UP_S = 3.0


class StillEnv:
    """An environment of the trainer itself, and the spaces of those that are simulated."""

    def __init__(self, *_, **__):
        import elements

        self.obs_space = {
            "vector": elements.Space(np.float32, (max(1, int(os.environ[BYTES_VARIABLE]) // 4),)),
            "reward": elements.Space(np.float32),
            **{key: elements.Space(bool) for key in ("is_first", "is_last", "is_terminal")},
        }
        self.act_space = {"action": elements.Space(np.int32, (), 0, 4), "reset": elements.Space(bool)}

    def step(self, action: dict) -> dict:
        obs = {key: np.zeros(space.shape, space.dtype) for key, space in self.obs_space.items()}
        return {**obs, "is_first": np.bool_(action["reset"])}

    def close(self) -> None:
        pass


def main() -> None:
    parser = parse_args(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement")
    parser.add_argument("--envs", type=int, nargs="+", default=list(ENVS), help="simulated environments")
    parser.add_argument("--per_worker", type=int, default=PER_WORKER, help="environments of one message")
    parser.add_argument("--bytes", type=int, default=BYTES, help="of an observation")
    parser.add_argument("--processes", type=int, default=1, help="that simulate workers")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)  # this file is also the processes that simulate
    args = parser.parse_args()
    if args.child:
        simulate(args.child[0], int(args.child[1]), int(args.child[2]), args.per_worker)
        return
    os.environ[BYTES_VARIABLE] = str(args.bytes)
    cases = []
    for transport, name in TRANSPORTS.items():
        for envs in args.envs:
            figures = measure(transport, envs, args)
            cases += [Case(f"{envs:,} envs, {name}: {key}", *figure) for key, figure in figures.items()]
    finish("scaling", cases, args.json)


def measure(transport: str, envs: int, args: argparse.Namespace) -> dict[str, tuple[str, str, float]]:
    """Steps per second, and what a step costs each role: name -> unit, which is better, value."""
    with (
        running_fleet(
            transport, 1, 1, f"{__spec__.name}:StillEnv", "disk", train_ratio=0.0, capacity=CAPACITY
        ) as fleet,
        simulated(fleet, envs, args),
    ):
        fleet.wait_step(fleet.step() + 2 * envs)
        threading.Event().wait(WARM_UP_S)
        processes = {role: psutil.Process(pid) for role, pid in fleet.pids().items() if role in ROLES}
        start, first, before = time.monotonic(), fleet.step(), cpu_times(processes)
        threading.Event().wait(args.seconds)
        steps, seconds, after = fleet.step() - first, time.monotonic() - start, cpu_times(processes)
    costs = {role: (after[role] - before[role]) / max(1, steps) for role in processes}
    wall = max(costs, key=lambda role: costs[role])
    return {
        "measured here": ("env steps/s", "higher", steps / seconds),
        **{f"{role} needs": ("us of a core/step", "lower", 1e6 * cost) for role, cost in costs.items()},
        f"{wall} needs a whole core at": ("env steps/s", "higher", 1 / costs[wall] if costs[wall] else 0.0),
    }


def cpu_times(processes: dict[str, psutil.Process]) -> dict[str, float]:
    return {role: sum(process.cpu_times()[:2]) for role, process in processes.items()}


@contextlib.contextmanager
def simulated(fleet: Fleet, envs: int, args: argparse.Namespace) -> Iterator[None]:
    """Processes with workers for so many environments."""
    each = envs // args.processes
    command = [sys.executable, "-m", "benchmarks.scaling", "--per_worker", str(args.per_worker), "--child"]
    fleet.wait_step(1)
    children = [
        subprocess.Popen([*command, str(fleet.logdir), str(FIRST_ENV + i * each), str(each)], stdin=subprocess.PIPE)
        for i in range(args.processes)
    ]
    try:
        yield
        assert all(child.poll() is None for child in children), "a process that simulates workers has ended"
    finally:
        for child in children:
            child.kill()
            child.wait()


def simulate(logdir: str, first: int, count: int, per_worker: int) -> None:
    """Workers that ask for the next actions as soon as they have those before, until the process is killed."""
    from dreamfleet.base.logdir import KEY_FILE
    from dreamfleet.launch.invitation import read_invitation
    from dreamfleet.options import role_options
    from dreamfleet.roles.hello import describe_spaces
    from dreamfleet.roles.protocol import ACT_MANY, ENV_ID, IS_EVAL, ActSession
    from dreamfleet.roles.wiring import connect

    options = role_options(read_invitation(logdir).make_options("envs"), owner="simulation")
    options = dataclasses.replace(options, key_file=str(Path(logdir) / KEY_FILE))
    env = StillEnv()
    spaces = {
        "obs_space": describe_spaces(env.obs_space),
        "act_space": describe_spaces(env.act_space, has_bounds=True),
    }
    waiting = []
    for start in range(first, first + count, per_worker):
        env_ids = np.arange(start, min(start + per_worker, first + count))
        facts = {"envs": tuple(env_ids.tolist()), **spaces}
        client = connect(options, "actor", f"env{start}", me="env", facts=lambda facts=facts: facts)
        rows = [env.step({"reset": True})] * len(env_ids)
        obs = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        data = {**obs, ENV_ID: env_ids, IS_EVAL: np.zeros(len(env_ids), bool)}
        meta = ActSession(client.session).to_meta()
        waiting.append((client, data, meta, client.call(ACT_MANY, data, meta=meta)))
    while True:
        for i, (client, data, meta, answer) in enumerate(waiting):
            answer.result()
            data["is_first"][:] = False
            waiting[i] = client, data, meta, client.call(ACT_MANY, data, meta=meta)


if __name__ == "__main__":
    main()
