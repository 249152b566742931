"""A small fleet of counting environments and a checking agent, for tests on real processes."""

import contextlib
import functools
import itertools
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import elements
import psutil

from dreamfleet.errors import RunFailed
from dreamfleet.launch.combined import combined
from dreamfleet.launch.factories import Factories
from dreamfleet.metrics import make_writers
from dreamfleet.options import Args, RoleOptions, read_args
from dreamfleet.replay import Store, consecutive_batches
from dreamfleet.roles.replay.counts import CountsFile
from dreamfleet.testing import CountingAgent, CountingEnv

DEADLINE_S = 900.0  # against hangs: what is awaited takes seconds, but a busy machine may take minutes for it


def make_args(logdir: Path, **options) -> elements.Config:
    """Arguments of a fleet that is small and quick to train."""
    defaults = {
        "logdir": str(logdir),
        "actor_addr": "ipc:{auto}",
        "replay_addr": "ipc:{auto}",
        "logger_addr": "ipc:{auto}",
        "actor_batch": -1,
        "actor_threads": 1,
        "agent_process": True,
        "envs": 3,
        "eval_envs": 1,
        "remote_envs": False,
        "remote_replay": False,
        "batch_size": 4,
        "batch_length": 8,
        "report_length": 4,
        "report_every": 0.5,
        "save_every": 0.5,
        "log_every": 0.5,
        "report_batches": 1,
        "from_checkpoint": "",
        "from_checkpoint_regex": ".*",
        "steps": 1500,
        "train_ratio": 8.0,
    }
    return elements.Config({**defaults, **options})


def make_factories(args: Args, make_agent: Callable = CountingAgent, make_env: Callable = CountingEnv) -> Factories:
    """The factories of `combined`, in its order."""
    options = read_args(args)
    length = options.sequence_length
    make_train, make_eval = (functools.partial(make_store, args, length, mode) for mode in ("train", "eval"))
    make_stream = functools.partial(_make_stream, options)
    make_logger = functools.partial(_make_logger, args.logdir)
    return Factories(make_agent, make_train, make_eval, make_env, make_env, make_stream, make_logger)


class GatedEnv(CountingEnv):
    """Stops after some episodes until a file is there, so that a run does not end before it was looked at."""

    def __init__(self, index: int, gate: str, episodes: int, **options):
        super().__init__(index, **options)
        self._gate, self._episodes = Path(gate), episodes

    def step(self, action: dict) -> dict:
        pause = threading.Event()
        while self._episode == self._episodes and not self._gate.exists():
            pause.wait(0.01)
        return super().step(action)


def make_store(args: Args, length: int, mode: str) -> Store:
    """The store of a fleet, which holds all of its steps, in memory if a key `storage` of the test says so."""
    is_disk = isinstance(args, RoleOptions) or args.get("storage", "disk") == "disk"
    directory = Path(read_args(args).logdir) / "replay" / mode if is_disk else None
    return Store(length, 5000, directory=directory)


def _make_stream(options: RoleOptions, replay, mode: str):
    is_train = mode == "train"
    return consecutive_batches(
        replay,
        mode,
        batch_size=options.batch_size,
        length=options.batch_length if is_train else options.report_length,
        consec=options.consec_train if is_train else 1,
        context=options.replay_context,
    )


def _make_logger(logdir: str) -> elements.Logger:
    return elements.Logger(elements.Counter(), make_writers(["jsonl"], logdir, 15))


def eventually(condition: Callable, what: str):
    """Waits until `condition` returns something true, and returns that."""
    pause = threading.Event()
    deadline = time.monotonic() + DEADLINE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {DEADLINE_S} s for {what}"
        pause.wait(0.02)
    return result


class RunningFleet:
    """A fleet in the background, seen and disturbed from outside."""

    def __init__(self, factories: tuple, args: elements.Config):
        self.args = args
        self.logdir = Path(args.logdir)
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(factories,))
        self.thread.start()

    def _run(self, factories: tuple) -> None:
        try:
            combined(*factories, self.args)
        except BaseException as e:
            self.error = e

    def join(self) -> None:
        """Waits for the end of the run and raises what it raised."""
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive(), f"the run does not end: {self.status()}"
        if self.error:
            raise self.error

    def step(self) -> int:
        return read_inserts(self.logdir)

    def wait_step(self, step: int) -> None:
        def is_there() -> bool:
            assert self.thread.is_alive(), f"the run ended before step {step}: {self.error}"
            return self.step() >= step

        eventually(is_there, f"step {step}")

    def wait_role(self, name: str, condition: Callable[[dict], bool]) -> dict:
        """Waits until the status of a role fulfils the condition, and returns it."""

        def look() -> dict | None:
            is_alive = self.thread.is_alive()
            role = self.status()["roles"].get(name, {})
            if role and condition(role):
                return role
            assert is_alive, f"the run ended before {name} was seen so: {self.error}"
            return None

        return eventually(look, f"role {name}")

    def status(self) -> dict:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.logdir / "status.json").read_text())
        return {"roles": {}}

    def kill(self, name: str) -> int:
        """Kills a running role with SIGKILL; returns its former pid."""
        role = self.wait_role(name, lambda role: role["state"] == "running")
        psutil.Process(role["pid"]).kill()
        return role["pid"]

    def kill_to_end(self, name: str) -> None:
        """Ends a run whose roles are not restarted, by killing one of them; what ended before that is an error."""
        self.kill(name)
        self.thread.join(DEADLINE_S)
        assert isinstance(self.error, RunFailed) and name in str(self.error), self.error
        self.error = None  # it was asked for


@contextlib.contextmanager
def running_fleet(args: elements.Config, *parts, factories: tuple = (), **options) -> Iterator[RunningFleet]:
    """Runs a fleet in the background; at the end of the block it must be over, and no process may be left.

    It is made of `factories`, or of what `make_factories` makes of the other arguments.
    """
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    fleet = RunningFleet(factories or make_factories(args, *parts, **options), args)
    try:
        yield fleet
        fleet.join()
    finally:
        left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
        for process in left if fleet.thread.is_alive() else []:
            process.kill()
        fleet.thread.join(DEADLINE_S)
    # Not those of what was there before, such as a browser of other tests that starts and ends processes as it likes.
    left = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if not before & {process.pid, *(parent.pid for parent in process.parents())}:
                left.append(process.as_dict(["pid", "ppid", "status", "cmdline"]))
    assert not left, f"processes are left: {left}"


@contextlib.contextmanager
def gated_fleet(args: elements.Config, episodes: int, **options) -> Iterator[RunningFleet]:
    """The same, whose training environments stop after some episodes; they go on when the block has ended."""
    gate = Path(args.logdir) / "gate"
    make_env = functools.partial(GatedEnv, gate=str(gate), episodes=episodes, **options)
    make_env_eval = functools.partial(CountingEnv, **options)
    factories = make_factories(args, make_env=make_env)._replace(make_env_eval=make_env_eval)
    with running_fleet(args, factories=factories) as fleet:
        yield fleet
        gate.touch()


def kill_below(process: subprocess.Popen) -> None:
    """Kills what a test has started, with everything that it has started itself."""
    below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.kill()
    for child in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait()


_ports = itertools.count(20_000 + 2_000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")))


def free_port() -> int:
    """A port that nobody is given by chance: below those of the kernel, and of this process of tests alone."""
    for port in _ports:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("there is no end of ports")


def is_open(addr: str) -> bool:
    """Whether somebody listens at a TCP address."""
    host, _, port = addr.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def count_rebuilds(logdir: Path) -> int:
    """How often an environment raised; a wrong action makes a CountingEnv raise."""
    return sum(path.read_text().count("failed, rebuilding it") for path in (logdir / "logs").glob("env*.log"))


def read_inserts(logdir: Path) -> int:
    """The steps that a run has committed so far."""
    path = logdir / "replay" / "counts"
    if not path.exists():
        return 0
    file = CountsFile(path)
    try:
        return file.read().inserts
    finally:
        file.close()


def read_jsonl(path: Path) -> list[dict]:
    """The lines of a file that may be growing, without a last one that is not finished."""
    return [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()]
