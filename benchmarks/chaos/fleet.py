"""A fleet under fault injection, seen from outside: `dreamfleet train`, and perhaps a replay that joins over TCP."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.chaos.control import VARIABLE, Control
from benchmarks.chaos.proxy import Proxy
from dreamfleet.launch.supervise.process_tree import TOKEN_VARIABLE
from dreamfleet.roles.replay.counts import Counts, CountsFile

REPOSITORY = Path(__file__).parents[2]
ENVS = 4
BATCH_SIZE, BATCH_LENGTH, TRAIN_RATIO = 2, 8, 8.0
PATIENCE_S = 900.0  # against hangs: what is awaited takes seconds, but a busy machine may take minutes for it
COMPILE_S = 900.0  # for the first training of all, on a slow machine without a cache
OPTIONS = {
    "preset": "debug",
    "task": "benchmarks.chaos.faulty_env:FaultyEnv",
    "agent": "dreamfleet.agent.dreamer:Dreamer",
    "dreamer.size": "debug",
    "replay.capacity": 500_000,  # keeps every step, so that none can be missed
    "run.envs": ENVS,
    "run.train_ratio": TRAIN_RATIO,
    "run.env_timeout": 35.0,
    "run.save_every": 5.0,
    "run.report_every": 0.0,
}


class ChaosError(AssertionError):
    """The fleet did not keep a promise."""


class ChaosFleet:
    """Starts the processes, finds the roles among them, and looks at what they have done."""

    def __init__(self, root: Path, *, is_remote: bool = False, options: dict[str, Any] | None = None):
        self.root = root
        self.logdir = root / "run"
        self.replay_logdir = root / "replay" if is_remote else self.logdir
        self.logger_logdir = self.logdir
        self.temporary = root / "tmp"  # where the fleet puts its sockets
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.ports: list[int] = []  # that it listens on
        self.control = Control(root / "control")
        self.proxy: Proxy | None = None
        self.went_back = 0  # steps by which the count of steps ever went back
        self._options = {**OPTIONS, **(options or {})}
        self._is_remote = is_remote
        self._processes: dict[str, subprocess.Popen] = {}
        self._closing = threading.Event()
        self._counts: CountsFile | None = None
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)

    def start(self) -> None:
        """Starts a run, or goes on with the one in the log directory."""
        addresses = {}
        if self._is_remote:
            port = self.proxy.target if self.proxy else free_port()
            self.proxy = self.proxy or Proxy(port)
            self.ports = [port, free_port()]
            logger = f"localhost:{self.ports[1]}"
            addresses = {"run.remote_replay": True, "run.replay_addr": f"localhost:{self.proxy.port}"}
            addresses["run.logger_addr"] = logger
            self._launch("train", "train", options={**self._options, **addresses, "logdir": self.logdir})
            self.eventually((self.logdir / "run.key").exists, "the key of the run")
            joining = {"addr-replay": f"localhost:{port}", "addr-logger": logger, "key": self.logdir / "run.key"}
            joining["logdir"] = self.replay_logdir
            self._launch("replay", "role", "replay", options={**self._options, **joining})
        else:
            self._launch("train", "train", options={**self._options, "logdir": self.logdir})
        if not self._watcher.is_alive():
            self._watcher.start()

    def wait_training(self, steps: int = 50) -> None:
        """Waits until this many more steps were taken and trained on."""
        before = self.counts()

        def is_training() -> bool:
            now = self.counts()
            return now.inserts >= before.inserts + steps and now.samples > before.samples

        self.eventually(is_training, f"{steps} more steps and training", COMPILE_S)

    def stop(self) -> str:
        """Ends the run in order, as a user would, and returns what it printed."""
        for name in ("train", "replay"):
            if name in self._processes:
                process, expected = self._processes.pop(name), 0
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    expected = 128 + signal.SIGTERM
                if (code := process.wait(PATIENCE_S)) != expected:
                    raise ChaosError(f"{name} ended with code {code}:\n{self.output(name)[-3000:]}")
        return self.output("train")

    def wait_end(self) -> int:
        """Waits for the run to end by itself; returns its exit code."""
        return self._processes.pop("train").wait(PATIENCE_S)

    def close(self) -> None:
        """Kills whatever is left."""
        self._closing.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for process in self._processes.values():
            process.kill()
            process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.proxy:
            self.proxy.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run_command(self, *words: object) -> subprocess.CompletedProcess:
        """Runs another `dreamfleet` command with the options of this fleet to its end."""
        command = [sys.executable, "-m", "dreamfleet", *map(str, words), *_flags(self._options)]
        return subprocess.run(
            command, env=self._environ(), cwd=self.root, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def output(self, name: str = "train") -> str:
        return (self.root / f"{name}.txt").read_text(errors="replace")

    def processes(self) -> dict[int, str]:
        """Every process of this fleet that is there, with its token (empty for the launchers)."""
        found = {}
        mark = f"{VARIABLE}={self.root / 'control'}".encode()
        for directory in Path("/proc").iterdir():
            if directory.name.isdecimal():
                with contextlib.suppress(OSError):
                    values = (directory / "environ").read_bytes().split(b"\0")
                    if mark in values:
                        prefix = f"{TOKEN_VARIABLE}=".encode()
                        tokens = [v[len(prefix) :].decode() for v in values if v.startswith(prefix)]
                        found[int(directory.name)] = tokens[0] if tokens else ""
        return found

    def find(self, role: str) -> int | None:
        """The process that leads a role."""
        for pid, token in self.processes().items():
            with contextlib.suppress(ProcessLookupError):
                if token.split("/")[1:2] == [role] and os.getpgid(pid) == pid:
                    return pid
        return None

    def pid(self, role: str) -> int:
        return self.eventually(lambda: self.find(role), f"a process for {role}")

    def counts(self) -> Counts:
        """What the replay has counted."""
        if self._counts is None:
            path = self.replay_logdir / "replay" / "counts"
            if not path.exists():
                return Counts()
            self._counts = CountsFile(path)
        return self._counts.read()

    def status(self) -> dict:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.logdir / "status.json").read_text())
        return {"roles": {}}

    def eventually(self, condition: Callable, what: str, patience_s: float = PATIENCE_S):
        """Waits until `condition` returns something true, and returns that; the run must not end meanwhile."""
        pause, deadline = threading.Event(), time.monotonic() + patience_s
        while not (result := condition()):
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ChaosError(f"{name} ended while waiting for {what}:\n{self.output(name)[-3000:]}")
            if time.monotonic() > deadline:
                raise ChaosError(f"{what} did not happen within {patience_s:.0f} s; {json.dumps(self.status())}")
            pause.wait(0.01)
        return result

    def _launch(self, name: str, *words: str, options: dict, before: Sequence[str] = ()) -> None:
        line = [*before, sys.executable, "-m", "dreamfleet", *words, *_flags(options)]
        with (self.root / f"{name}.txt").open("a") as output:
            self._processes[name] = subprocess.Popen(
                line, env=self._environ(), cwd=self.root, stdout=output, stderr=subprocess.STDOUT
            )

    def _environ(self) -> dict[str, str]:
        path = [str(Path(__file__).parent / "clock"), str(REPOSITORY), *os.environ.get("PYTHONPATH", "").split(":")]
        own = {VARIABLE: str(self.root / "control"), "TMPDIR": str(self.temporary)}
        return {**os.environ, **own, "PYTHONPATH": ":".join(filter(None, path))}

    def _watch(self) -> None:
        """Looks at the count of steps all the time: it may never go back."""
        highest = 0
        while not self._closing.wait(0.02):
            inserts = self.counts().inserts
            self.went_back = max(self.went_back, highest - inserts)
            highest = max(highest, inserts)


def _flags(options: dict[str, Any]) -> list[str]:
    return [word for key, value in options.items() for word in (f"--{key}", str(value))]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
