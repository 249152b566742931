"""The program as a user runs it: training to the end, stopping, resuming, and joining from elsewhere."""

import contextlib
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import elements
import numpy as np
import psutil
import pytest

from dreamfleet.checkpoint import Checkpoint, Checkpoints
from dreamfleet.launch.supervise.status import read_status
from dreamfleet.replay.archive import Archive
from tests.fleet import DEADLINE_S, eventually, free_port, is_open, kill_below, read_inserts

pytestmark = pytest.mark.distributed

SMALL = ["--preset", "debug", "random", "--task", "dummy_vector", "--run.train_ratio", "4"]


@pytest.fixture
def start(tmp_path):
    """Starts `dreamfleet ARGS` and ends it, with everything below it, when the test is over."""
    started = []

    def start_one(*args: object) -> subprocess.Popen:
        command = [sys.executable, "-m", "dreamfleet", *map(str, args)]
        output = (tmp_path / f"output-{len(started)}.txt").open("w+")
        started.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))
        started[-1].output = output.name
        return started[-1]

    yield start_one
    for process in started:
        kill_below(process)


def read_output(process: subprocess.Popen) -> str:
    return Path(process.output).read_text()


def finish(process: subprocess.Popen) -> str:
    """Waits for the exit and returns the output."""
    process.wait(DEADLINE_S)
    return read_output(process)


def wait_step(logdir: Path, step: int, process: subprocess.Popen) -> None:
    def is_there() -> bool:
        assert process.poll() is None, read_output(process)
        return read_inserts(logdir) >= step

    eventually(is_there, f"step {step}")


def pids_of_roles(logdir: Path) -> list[int]:
    return [role["pid"] for role in json.loads((logdir / "status.json").read_text())["roles"].values() if role["pid"]]


def wait_gone(pids: list[int]) -> None:
    """Waits until none of the processes is left."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(DEADLINE_S * 1000), f"process {pid} is still there"
        os.close(fd)


def test_run_to_the_end_and_again(start, tmp_path):
    logdir = tmp_path / "run"
    first = start("train", *SMALL, "--steps", 400, "--logdir", logdir)
    output = finish(first)
    assert first.returncode == 0, output
    assert (
        "new run" in output
        and "400" in output
        and re.search(r"\nreplay buffer: 1,000 steps, at least .+ \(\d+ bytes", output)
    )
    assert elements.Config.load(logdir / "config.yaml").run.steps == 400
    assert Checkpoints(logdir).latest() is not None
    status = json.loads((logdir / "status.json").read_text())
    assert status["state"] == "complete" and not pids_of_roles(logdir)
    again = start("train", *SMALL, "--steps", 800, "--logdir", logdir)
    output = finish(again)
    assert again.returncode == 0 and "resum" in output, output
    assert read_inserts(logdir) >= 800


def check_counts(checkpoint: Checkpoint) -> None:
    """All counts of a checkpoint are those of one moment."""
    inserts = checkpoint.read("replay")["inserts"]
    counts, replay = checkpoint.manifest["counts"], checkpoint.manifest["replay"]
    assert checkpoint.step == counts["inserts"] == replay["inserts"] == inserts
    assert checkpoint.read("replay")["train"]["committed"] == inserts


@pytest.mark.parametrize("mode", ["parallel", "serial"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_checkpoint_and_stop(start, tmp_path, mode, number, code):
    words = ["train", *SMALL, "--logdir", tmp_path, "--run.save_every", 0, "--run.mode", mode]
    process = start(*words)
    wait_step(tmp_path, 200, process)
    pids = pids_of_roles(tmp_path) if mode == "parallel" else []
    assert Checkpoints(tmp_path).latest() is None
    process.send_signal(number)
    output = finish(process)
    assert process.returncode == code, output
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint and checkpoint.step >= 200
    check_counts(checkpoint)
    last = output.splitlines()[-1]
    assert last.startswith(
        f"stopped by {number.name}: step {checkpoint.step:,} | checkpoint {checkpoint.name} | resume"
    )
    assert last.endswith(f"resume with: python -m dreamfleet {shlex.join(map(str, words))}")
    wait_gone(pids)
    if mode == "parallel":
        assert json.loads((tmp_path / "status.json").read_text())["state"] == "stopped"


def test_killed_launcher_leaves_no_orphan(start, tmp_path):
    process = start("train", *SMALL, "--logdir", tmp_path)
    wait_step(tmp_path, 100, process)
    pids = pids_of_roles(tmp_path)
    assert len(pids) == 5
    process.kill()
    wait_gone(pids)


def test_serial_run(start, tmp_path):
    process = start("train", *SMALL, "--run.mode", "serial", "--steps", 300, "--logdir", tmp_path)
    output = finish(process)
    assert process.returncode == 0, output
    assert Checkpoints(tmp_path).latest() is not None


def test_a_resumed_run_explores_anew(start, tmp_path):
    for steps in (200, 400):
        process = start(
            "train", *SMALL, "--run.mode", "serial", "--run.envs", 1, "--steps", steps, "--logdir", tmp_path
        )
        output = finish(process)
        assert process.returncode == 0, output
    archive = Archive(tmp_path)
    (actions,) = (archive.read(*trajectory)["action"] for trajectory in archive.trajectories())
    assert len(actions) >= 400
    assert not np.array_equal(actions[:100], actions[200:300])


def test_failing_environment_ends_with_its_traceback(start, tmp_path):
    (tmp_path / "broken_env.py").write_text("def make():\n    raise RuntimeError('out of licences')\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "dreamfleet", "train", *SMALL, "--task", "broken_env:make"]
    command += ["--run.max_restarts", "2", "--logdir", str(tmp_path / "run")]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert result.returncode == 2, "it is refused before the fleet starts"
    assert "out of licences" in result.stderr and "broken_env.py" in result.stderr
    assert "supervisor.py" not in result.stderr, "the launcher's own traceback is of no use to the user"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            ["--task", "gym_gymnasium:NoSuch-v0"],
            "preflight: task='gym_gymnasium:NoSuch-v0' cannot be made by Gymnasium",
        ),
        (["--replay.capacity", 10**12], "preflight: replay.capacity=1000000000000 needs"),
    ],
)
def test_what_only_an_environment_can_tell_is_refused_before_the_fleet_starts(start, tmp_path, words, part):
    logdir = tmp_path / "run"
    refused = start("train", *SMALL, *words, "--logdir", logdir)
    assert part in finish(refused) and refused.returncode == 2
    assert [path.name for path in (logdir / "logs").iterdir()] == ["preflight.log"]
    mended = start("train", *SMALL, "--steps", 100, "--logdir", logdir)
    assert "new run" in finish(mended) and mended.returncode == 0


def test_platform_without_a_device_is_refused(start, tmp_path):
    process = start("train", "--preset", "debug", "--jax.platform", "gpu", "--logdir", tmp_path)
    output = finish(process)
    assert "agent: jax.platform='gpu' has no device that JAX can use here (its plugin is not installed)" in output
    assert process.returncode == 2


def test_environments_join_from_elsewhere_with_the_key(start, tmp_path):
    logdir = tmp_path / "run"
    addresses = {role: f"localhost:{free_port()}" for role in ("actor", "replay", "logger")}
    words = [word for role, addr in addresses.items() for word in (f"--run.{role}_addr", addr)]
    main = start("train", *SMALL, "--run.remote_envs", True, *words, "--steps", 300, "--logdir", logdir)
    eventually((logdir / "run.key").exists, "the key of the run")
    join = ["--addr-actor", addresses["actor"], "--addr-logger", addresses["logger"], "--key", logdir / "run.key"]
    envs = start("role", "envs", *SMALL, *join, "--envs", 2, "--logdir", tmp_path / "elsewhere")
    output = finish(main)
    assert main.returncode == 0, output + read_output(envs)
    assert read_inserts(logdir) >= 300
    envs.terminate()
    assert "lost" not in finish(envs) or envs.returncode == 0
    assert not list((tmp_path / "elsewhere").glob("**/run.key"))


def test_workers_join_with_the_file_of_the_run_alone(start, tmp_path):
    logdir, there = tmp_path / "run", tmp_path / "there"
    main, _ = start_without_envs(start, logdir, steps=0)
    eventually((logdir / "join.json").exists, "the file with which others join")
    (tmp_path / "line").write_text(finish(start("join", "--show", logdir)))
    for number, source in enumerate((logdir / "join.json", tmp_path / "line")):  # as on two machines
        start("join", source, "--envs", 2, "--logdir", there / str(number))
    wait_step(logdir, 200, main)
    eventually(lambda: len(read_leases(logdir)) == 4, "environments of both")
    secret = (logdir / "run.key").read_text().split()[1]
    words = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            words += process.cmdline()
    assert words and not any(secret in word for word in words), "the key is in the list of processes"
    main.terminate()
    assert secret not in finish(main) and main.returncode == 143
    logs = [path.read_text() for path in [*logdir.glob("logs/*"), *there.glob("**/logs/*")]]
    assert logs and not any(secret in log for log in logs)


def read_leases(logdir: Path) -> list[int]:
    path = logdir / "leases.json"
    return [env for *_, envs, _ in json.loads(path.read_text())["leases"] for env in envs] if path.exists() else []


def start_without_envs(start, logdir: Path, steps: int) -> tuple[subprocess.Popen, list]:
    """A run whose environments come from elsewhere, without an end if `steps` is 0, and the words to join it with."""
    addresses = {role: f"localhost:{free_port()}" for role in ("actor", "logger")}
    words = [word for role, addr in addresses.items() for word in (f"--run.{role}_addr", addr)]
    main = start("train", *SMALL, "--run.remote_envs", True, *words, "--steps", steps, "--logdir", logdir)
    eventually((logdir / "run.key").exists, "the key of the run")
    join = ["--addr-actor", addresses["actor"], "--addr-logger", addresses["logger"], "--key", logdir / "run.key"]
    return main, join


def test_a_worker_whose_launcher_was_killed_comes_back_and_ends_with_the_run(start, tmp_path):
    logdir = tmp_path / "run"
    main, join = start_without_envs(start, logdir, steps=5000)
    worker = ["role", "envs", *SMALL, *join, "--envs", 2, "--logdir", tmp_path / "elsewhere"]
    first = start(*worker)
    eventually(lambda: (logdir / "replay" / "counts").exists() and read_inserts(logdir) > 50, "steps of the worker")
    first.kill()
    first.wait()
    again = start(*worker)
    assert finish(main) and main.returncode == 0, read_output(main) + read_output(again)
    assert finish(again) and again.returncode == 0, read_output(again)


def test_workers_that_do_not_fit_are_refused_and_the_run_goes_on(start, tmp_path):
    logdir = tmp_path / "run"
    main, join = start_without_envs(start, logdir, steps=0)
    worker = start("role", "envs", *SMALL, *join, "--envs", 2, "--logdir", tmp_path / "worker")
    wait_step(logdir, 50, main)
    for name, options, reason in (
        ("task", ["--task", "dummy_image"], "the environment has other observations than the run"),
        ("numbers", ["--envs", 2, "--index", 0], "is stepped on"),
    ):
        other = start("role", "envs", *SMALL, *join, *options, "--logdir", tmp_path / name)
        output = finish(other)
        assert reason in output and other.returncode == 2, output
    step = read_inserts(logdir)
    wait_step(logdir, step + 50, main)
    main.terminate()
    assert finish(main) and main.returncode == 143
    worker.terminate()


def start_with_roles_elsewhere(start, tmp_path: Path, steps: int) -> subprocess.Popen:
    """A run whose replay and logger are started by themselves, with log directories of their own."""
    logdir = tmp_path / "run"
    addresses = {role: f"localhost:{free_port()}" for role in ("actor", "replay", "logger")}
    words = [word for role, addr in addresses.items() for word in (f"--run.{role}_addr", addr)]
    remote = ["--run.remote_replay", True, "--run.remote_logger", True]
    main = start("train", *SMALL, *remote, *words, "--steps", steps, "--logdir", logdir)
    eventually((logdir / "run.key").exists, "the key of the run")
    for role, place in (("logger", "here"), ("replay", "there")):
        told = [f"--addr-{role}", addresses[role], "--addr-actor", addresses["actor"], "--key", logdir / "run.key"]
        start("role", role, *SMALL, *told, "--logdir", tmp_path / place)
        eventually(lambda addr=addresses[role]: is_open(addr), f"the {role}, which a short run would not wait for")
    return main


def test_replay_and_logger_elsewhere_are_in_the_status_of_the_run(start, tmp_path):
    main = start_with_roles_elsewhere(start, tmp_path, steps=0)
    log = tmp_path / "run" / "logs" / "agent.log"

    def await_role(role: str, **figures: object) -> dict:
        def look() -> dict | None:
            machines = read_status(tmp_path / "run").get("machines", {}).values()
            found = next((machine["roles"][role] for machine in machines if role in machine["roles"]), {})
            return found if figures.items() <= found.items() else None

        return eventually(look, f"the {role} with {figures}")

    def await_line(text: str) -> None:
        eventually(lambda: text in log.read_text(), f"{text!r} in {log}")

    for role in ("replay", "logger"):
        psutil.Process(await_role(role, state="running")["pid"]).kill()
        await_line(f", {role}: {role} failed: killed by SIGKILL")
        await_role(role, state="running", restarts=1)
    main.terminate()
    assert finish(main) and main.returncode == 143, read_output(main)


def test_replay_and_logger_join_from_elsewhere(start, tmp_path):
    logdir = tmp_path / "run"
    main = start_with_roles_elsewhere(start, tmp_path, steps=300)
    output = finish(main)
    assert main.returncode == 0, output
    assert read_inserts(tmp_path / "there") >= 300
    kept, own = Checkpoints(tmp_path / "there").latest(), Checkpoints(logdir).latest()
    assert kept and own and kept.name == own.name, "the parts of one checkpoint bear its name"
    assert (list(own.parts), list(kept.parts)) == (["agent"], ["replay"])
    eventually(lambda: (tmp_path / "here" / "scores.jsonl").stat().st_size, "scores")
