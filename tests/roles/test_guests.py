"""Parts written for danijar/dreamerv3 run unchanged: the look-alikes check every rule where they run."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dreamfleet.checkpoint import Checkpoint, Checkpoints
from tests.fleet import DEADLINE_S, eventually, make_args, read_inserts, read_jsonl

pytestmark = pytest.mark.distributed

SCRIPT = Path(__file__).with_name("guest_run.py")
ACTOR_BATCH, REPORTS = 2, 4


class GuestRun:
    """A run of guests in a process of its own, started as often as a test likes."""

    def __init__(self, logdir: Path, mode: str, transport: str):
        self.logdir, self._mode, self._transport = logdir, mode, transport
        self._process: subprocess.Popen | None = None
        self._started = 0.0

    def start(self, steps: int) -> None:
        """Starts it up to so many steps; without end for 0."""
        options = make_args(
            self.logdir,
            steps=steps,
            transport=self._transport,
            actor_batch=ACTOR_BATCH,
            report_batches=2,
            consec_report=2,
            eval_policy="train",
            log_every=1.0,  # long enough for several updates, however busy the machine is
            report_every=0.05,  # short enough for one in every life
            max_restarts=1,
        )
        command = [sys.executable, SCRIPT, self._mode, self.logdir, json.dumps(dict(options.flat))]
        with (self.logdir / "output.txt").open("a") as output:
            self._process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output)
        self._started = psutil.Process(self._process.pid).create_time()

    def checkpoint(self, updates: int) -> Checkpoint:
        """Waits for one with more updates, and with all its parts."""

        def look() -> Checkpoint | None:
            assert self._process and self._process.poll() is None, self.output()
            newest = Checkpoints(self.logdir).latest("agent")
            return newest if newest and newest.manifest["updates"] > updates and not newest.missing else None

        return eventually(look, f"a checkpoint with more than {updates} updates")

    def kill_agent(self) -> None:
        """Kills the role, which comes back; in a serial run there is none."""
        if self._mode == "parallel":
            psutil.Process(self._roles()["agent"]["pid"]).kill()

    def interrupt(self, signum: int) -> None:
        """Ends all of it with a signal, and returns when nothing is left."""
        assert self._process
        processes = self._processes()
        self._process.send_signal(signum)
        self._process.wait(DEADLINE_S)
        _, alive = psutil.wait_procs(processes, DEADLINE_S)
        assert not alive, alive

    def end(self) -> None:
        """Waits for its end, which must be in order."""
        assert self._process
        assert self._process.wait(DEADLINE_S) == 0, self.output()
        left = [process for process in self._processes() if process.is_running()]
        assert not left, left

    def output(self) -> str:
        logs = [self.logdir / "output.txt", *self.logdir.glob("logs/*.log")]
        return "\n".join(f"{path.name}:\n{path.read_text()[-3000:]}" for path in logs)

    def lives(self) -> int:
        """Of the agent's process; in a serial run there is none."""
        path = self.logdir / "logs" / "agent.log"
        return path.read_text().count(" agent incarnation ") if path.exists() else 0

    def close(self) -> None:
        if self._process and self._process.poll() is None:
            self.interrupt(signal.SIGKILL)

    def _roles(self) -> dict:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.logdir / "status.json").read_text())["roles"]
        return {}

    def _processes(self) -> list[psutil.Process]:
        found = []
        for role in self._roles().values():
            with contextlib.suppress(psutil.NoSuchProcess, KeyError, TypeError):
                process = psutil.Process(role["pid"])
                if process.create_time() >= self._started:
                    found.append(process)
        return found


@pytest.fixture
def guest_run(tmp_path, request) -> Iterator[GuestRun]:
    run = GuestRun(tmp_path, *request.param)
    try:
        yield run
    finally:
        run.close()


def check_end(run: GuestRun, steps: int) -> Checkpoint:
    """A run that has ended by itself has all its steps, none beyond a batch of the actor, and a checkpoint of them."""
    run.end()
    inserts = read_inserts(run.logdir)
    assert steps <= inserts <= steps + ACTOR_BATCH
    checkpoint = Checkpoints(run.logdir).latest()
    assert checkpoint and checkpoint.parts == ["agent", "logger", "replay"]
    assert checkpoint.step == checkpoint.manifest["counts"]["inserts"] == inserts
    assert checkpoint.read("agent")["counters"]["updates"] == checkpoint.manifest["updates"]
    assert (run.logdir / "ckpt" / "agent").resolve() == checkpoint.path / "agent.bin"
    assert Checkpoints.load(run.logdir / "ckpt" / "agent").name == checkpoint.name
    return checkpoint


@pytest.mark.parametrize(
    ("guest_run", "signum"),
    [
        (("parallel", "auto"), signal.SIGKILL),
        (("parallel", "zmq"), signal.SIGTERM),
        (("parallel", "portal"), signal.SIGTERM),
        (("serial", "auto"), signal.SIGKILL),
        (("serial", "auto"), signal.SIGTERM),
    ],
    indirect=["guest_run"],
    ids=["auto-kill", "zmq-stop", "portal-stop", "serial-kill", "serial-stop"],
)
def test_guests_train_report_evaluate_save_die_and_resume(guest_run, signum):
    run = guest_run
    run.start(steps=0)
    first = run.checkpoint(updates=20)
    run.kill_agent()
    second = run.checkpoint(updates=first.manifest["updates"] + 20)
    run.interrupt(signum)
    assert "AssertionError" not in run.output(), run.output()
    before = read_inserts(run.logdir)
    run.start(steps=before + 300)
    last = check_end(run, before + 300)
    assert run.lives() in (0, 3), "it died only when it was killed"
    assert last.manifest["updates"] > second.manifest["updates"], "it was resumed"
    check_metrics(read_jsonl(run.logdir / "guest_metrics.jsonl"))


def check_metrics(lines: list[dict]) -> None:
    def values(key: str) -> list:
        return [line[key] for line in lines if key in line]

    steps = [line["step"] for line in lines]
    assert max(steps) > 300 and values("episode/score") and values("evaluation/score")
    assert any(0 < value < 1 for value in values("train/odd/max")), "numbers are averaged, whatever their key ends in"
    lengths = [length for (length,) in values("train/vector")]
    assert max(lengths) > 2 and not any(length % 2 for length in lengths), "arrays are joined"
    for mode in ("report", "eval"):
        shapes = values(f"{mode}/frames")
        assert shapes and all(shape[0] % REPORTS == 0 and shape[1:] == [4, 4, 3] for shape in shapes), shapes


@pytest.mark.parametrize("guest_run", [("parallel", "auto"), ("serial", "auto")], indirect=True, ids="-".join)
def test_a_run_of_guests_ends_before_there_is_a_first_batch(guest_run):
    guest_run.start(steps=10)
    assert check_end(guest_run, 10).manifest["updates"] == 0
    assert guest_run.lives() in (0, 1)
