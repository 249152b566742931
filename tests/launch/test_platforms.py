"""Systems without what a supervisor needs: environments join from there, the rest is refused with the reason."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dreamfleet.base.platforms import check_platform, find_lacking
from dreamfleet.errors import ConfigError
from tests.fleet import DEADLINE_S, eventually, read_inserts

# Takes away what Linux has and Windows has not, before anything of ours is imported.
ELSEWHERE = """
import os, select, signal, socket, sys
import elements, msgpack, numpy, psutil, rich.live, zmq  # which have their own ways there
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for module, names in {
    os: ("memfd_create", "pidfd_open", "sched_setscheduler", "sched_getaffinity", "posix_fallocate", "eventfd"),
    signal: ("SIGHUP", "pidfd_send_signal", "pthread_kill"),
    socket: ("AF_UNIX", "send_fds", "recv_fds"),
    select: ("poll",),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
def socketpair():  # as Windows' Python makes one
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        return server.accept()[0], client
socket.socketpair = socketpair
from dreamfleet.cli import main
"""


def run_elsewhere(*argv: str, **how) -> subprocess.Popen:
    code = f"{ELSEWHERE}\nsys.exit(main({list(argv)!r}))"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **how)


def test_this_system_lacks_nothing():
    assert find_lacking() == []
    check_platform("train")


def test_what_is_missing_is_named_with_the_way_out(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(ConfigError, match=r"command='train' is not supported on linux, which has no memfd, pidfd; use"):
        check_platform("train")


@pytest.mark.distributed
def test_training_elsewhere_is_refused(tmp_path):
    process = run_elsewhere("train", "--task", "dummy_vector", "--logdir", str(tmp_path / "run"))
    output = process.communicate(timeout=DEADLINE_S)[0].decode()
    assert process.returncode == 2 and "which has no memfd, pidfd, unix sockets, fcntl; use Linux" in output


@pytest.mark.distributed
def test_environments_elsewhere_join_a_run(tmp_path):
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    addresses = [f"127.0.0.1:{port}" for port in ports]
    trainer_words = ["train", "--preset", "debug", "random", "--run.remote_envs", "True", "--logdir", "run"]
    trainer_words += ["--run.actor_addr", addresses[0], "--run.logger_addr", addresses[1], "--run.train_ratio", "4"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    trainer = subprocess.Popen([sys.executable, "-m", "dreamfleet", *trainer_words], cwd=tmp_path, env=env)
    worker = None
    try:
        eventually((tmp_path / "run" / "run.key").exists, "the key of the run")
        words = ["role", "envs", "--task", "dummy_vector", "--envs", "3", "--env.dummy.length", "20", "--key"]
        words += ["run/run.key", "--addr-actor", addresses[0], "--addr-logger", addresses[1]]
        worker = run_elsewhere(*words, "--logdir", "worker", cwd=tmp_path, env=env)
        eventually(
            lambda: worker.poll() is not None or read_inserts(tmp_path / "run") > 200, "steps of the environments"
        )
        worker.send_signal(signal.SIGINT)
        output = worker.communicate(timeout=DEADLINE_S)[0].decode()
        assert worker.returncode == 130 and "stepping 3 environments in one process" in output, output
    finally:
        for process in filter(None, (worker, trainer)):
            process.send_signal(signal.SIGINT)
            process.wait(DEADLINE_S)
