"""Training on one machine, environments on another: here on one, with the trainer at a loopback address of its own.

The two commands are what you would type on two machines; between them, the run's key is copied to the worker:

    python remote_envs.py --logdir ~/logdir/remote --steps 4000
"""

import argparse
import shutil
import socket
import subprocess
import sys
from pathlib import Path

TRAINER = "127.0.0.2"  # the trainer's host name or address
DREAMFLEET = [sys.executable, "-m", "dreamfleet"]
TASK = ["--preset", "debug", "random", "--task", "gym_CartPole-v1"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logdir", type=Path, default=Path("~/logdir/remote"))
    parser.add_argument("--steps", default="4000")
    args = parser.parse_args()
    logdir = args.logdir.expanduser().absolute()
    actor_addr, logger_addr = find_address(), find_address()

    trainer = subprocess.Popen(
        [*DREAMFLEET, "train", *TASK, "--steps", args.steps, "--logdir", str(logdir / "trainer")]
        + ["--run.remote_envs", "True", "--run.actor_addr", actor_addr, "--run.logger_addr", logger_addr],
        stdout=subprocess.PIPE,
        text=True,
    )
    worker = None
    try:
        assert trainer.stdout is not None
        for line in trainer.stdout:
            print("trainer |", line, end="", flush=True)
            if worker is None and line.startswith("[agent]"):  # it is up, and so is the key
                key = copy_key(logdir / "trainer", logdir / "worker")
                worker = subprocess.Popen(
                    [*DREAMFLEET, "role", "envs", *TASK, "--envs", "4", "--key", str(key)]
                    + ["--logdir", str(logdir / "worker"), "--addr-actor", actor_addr, "--addr-logger", logger_addr],
                )
        return trainer.wait()
    finally:
        for process in (worker, trainer):
            if process and process.poll() is None:
                process.terminate()
                process.wait()


def find_address() -> str:
    """An address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind((TRAINER, 0))
        return f"{TRAINER}:{probe.getsockname()[1]}"


def copy_key(source: Path, target: Path) -> Path:
    """What `scp` does between machines: the key keeps its mode 600."""
    target.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(source / "run.key", target / "run.key"))


if __name__ == "__main__":
    sys.exit(main())
