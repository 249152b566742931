"""How a run ends, as a user sees it: complete, stopped or failed; with a checkpoint, or told that there is none."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dreamfleet.checkpoint import Checkpoints
from tests.fleet import DEADLINE_S, eventually, free_port, kill_below, read_inserts
from tests.test_runs import SMALL, check_counts, pids_of_roles, wait_gone, wait_step

pytestmark = pytest.mark.distributed

MODES = ["parallel", "serial"]

# Agents of a user, in a module beside the run.
AGENTS = """
import threading, time
from pathlib import Path
from dreamfleet.agent.random import RandomAgent

class Unsaveable(RandomAgent):
    def save(self):
        return {"net": object()}

class UnsaveableLater(RandomAgent):
    trained = 0
    def train(self, carry, data):
        self.trained += 1
        return super().train(carry, data)
    def save(self):
        return {"net": object()} if self.trained else super().save()

class SlowToSave(RandomAgent):
    trained = False
    def train(self, carry, data):
        self.trained = True
        return super().train(carry, data)
    def save(self):
        if self.trained:
            Path("saving").touch()
            time.sleep(1000)
        return super().save()

class SlowToCompile(RandomAgent):
    def train(self, carry, data):
        time.sleep(1000)

class SlowToStart(RandomAgent):
    def __init__(self, *args, **kwargs):
        print("constructing", flush=True)
        time.sleep(1000)

class Other(RandomAgent):
    def load(self, data, regex=None):
        data["weights"]
"""


@pytest.fixture
def start(tmp_path):
    """Starts `dreamfleet ARGS` beside the user's module; ends it, with all that it started, when the test is over."""
    (tmp_path / "mine.py").write_text(AGENTS)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
    started = []

    def start_one(*args: object, **how) -> subprocess.Popen:
        command = [sys.executable, "-m", "dreamfleet", *map(str, args)]
        output = tmp_path / f"output-{len(started)}.txt"
        with output.open("w") as file:
            streams = {"stdout": file, "stderr": subprocess.STDOUT, **how}
            process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, **streams)
        process.output = output
        started.append(process)
        return process

    yield start_one
    for process in started:
        kill_below(process)


def finish(process: subprocess.Popen) -> str:
    process.wait(DEADLINE_S)
    return process.output.read_text()


def wait_text(process: subprocess.Popen, text: str) -> None:
    def is_there() -> bool:
        output = process.output.read_text()
        assert process.poll() is None or text in output, output
        return text in output

    eventually(is_there, text)


@pytest.mark.parametrize("mode", MODES)
def test_without_its_last_checkpoint_a_run_has_failed(start, tmp_path, mode):
    logdir = tmp_path / "run"
    logdir.mkdir()
    (logdir / "ckpt").touch()  # nothing can be written below it
    process = start("train", *SMALL, "--steps", 300, "--run.mode", mode, "--run.save_every", 1, "--logdir", logdir)
    output = finish(process)
    assert process.returncode == 1, output
    assert "no checkpoint was written at the end of the run (cannot write" in output
    assert "there is none: all updates are lost" in output and "complete" not in output.splitlines()[-1]
    if mode == "parallel":
        assert json.loads((logdir / "status.json").read_text())["state"] == "failed"


@pytest.mark.parametrize("mode", MODES)
def test_an_agent_that_cannot_be_saved_is_refused_at_its_start(start, tmp_path, mode):
    process = start("train", *SMALL, "--agent", "mine:Unsaveable", "--run.mode", mode, "--logdir", tmp_path / "run")
    output = finish(process)
    assert "agent='Unsaveable' cannot be saved (cannot save /net: object is not an array" in output
    assert process.returncode == 2 and output.count("cannot be saved") <= 2, output


@pytest.mark.parametrize("mode", MODES)
def test_a_state_that_cannot_be_saved_any_more_names_the_newest_checkpoint(start, tmp_path, mode):
    logdir = tmp_path / "run"
    words = ["train", *SMALL, "--agent", "mine:UnsaveableLater", "--run.mode", mode, "--logdir", logdir]
    process = start(*words, "--steps", 300)
    output = finish(process)
    assert process.returncode == 1 and "object is not an array" in output, output
    assert "there is none: all updates are lost" in output


def test_a_stop_does_not_wait_for_the_first_update(start, tmp_path):
    process = start("train", *SMALL, "--agent", "mine:SlowToCompile", "--logdir", tmp_path / "run")
    wait_text(process, "compiling")
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode == 130 and "stopped during the first update: no checkpoint" in output, output
    assert "did not stop" not in output and "killed" not in output and "no checkpoint | resume" in output


def test_a_stop_does_not_wait_for_an_agent_that_has_not_started(start, tmp_path):
    process = start("train", *SMALL, "--agent", "mine:SlowToStart", "--logdir", tmp_path / "run")
    wait_text(process, "creating the agent")
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode == 130 and "stopped by SIGINT: step 0 | no checkpoint" in output, output
    assert "did not stop" not in output and "failed" not in output


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_has_all_its_updates_says_so_at_once(start, tmp_path, mode):
    words = ["train", *SMALL, "--run.mode", mode, "--logdir", tmp_path / "run", "--updates"]
    output = finish(start(*words, 40))
    checkpoint = Checkpoints(tmp_path / "run").latest()
    assert checkpoint, output
    where = f"step {checkpoint.step:,}, update 40/40 | checkpoint {checkpoint.name}"
    assert output.splitlines()[-1] == f"complete: {where}"
    last = f"complete already: {where} | raise --steps, --updates or --duration to go on"
    assert finish(start(*words, 40)).splitlines()[-1] == last
    assert "update 50/50" in finish(start(*words, 50)).splitlines()[-1]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_is_complete_says_so_at_once(start, tmp_path, mode):
    logdir = tmp_path / "run"
    words = ["train", *SMALL, "--run.mode", mode, "--logdir", logdir, "--steps"]
    first = start(*words, 300)
    output = finish(first)
    checkpoint = Checkpoints(logdir).latest()
    assert checkpoint and first.returncode == 0, output
    assert output.splitlines()[-1] == f"complete: step {checkpoint.step:,}/300 | checkpoint {checkpoint.name}"
    files = {path: path.stat().st_mtime_ns for path in logdir.rglob("*") if path.is_file() and path.name != "run.lock"}
    again = start(*words, 300)
    output = finish(again)
    assert again.returncode == 0
    assert output.splitlines()[-1].startswith(f"complete already: step {checkpoint.step:,}/300 | checkpoint")
    assert "raise --steps, --updates or --duration to go on" in output
    after = {path: path.stat().st_mtime_ns for path in logdir.rglob("*") if path.is_file() and path.name != "run.lock"}
    assert after == files, "nothing was started or written"
    more = start(*words, 500)
    assert "\ncomplete: step " in finish(more) and read_inserts(logdir) >= 500


@pytest.mark.parametrize("mode", MODES)
def test_a_pipe_that_nobody_reads_stops_the_run_with_a_checkpoint(start, tmp_path, mode):
    logdir = tmp_path / "run"
    reader, writer = os.pipe()
    process = start("train", *SMALL, "--run.mode", mode, "--run.save_every", 0, "--logdir", logdir, stdout=writer)
    os.close(writer)
    wait_step(logdir, 100, process) if mode == "serial" else eventually(lambda: read_inserts(logdir) >= 100, "steps")
    pids = pids_of_roles(logdir) if mode == "parallel" else []
    os.close(reader)
    process.wait(DEADLINE_S)
    assert process.returncode == 128 + signal.SIGPIPE
    checkpoint = Checkpoints(logdir).latest()
    assert checkpoint and checkpoint.step >= 100
    wait_gone(pids)


def test_a_pipe_into_head_stops_the_run_with_a_checkpoint(tmp_path):
    logdir = tmp_path / "run"
    words = ["train", *SMALL, "--run.save_every", "0", "--logdir", str(logdir)]
    command = " ".join([sys.executable, "-m", "dreamfleet", *words, "| head -4; exit ${PIPESTATUS[0]}"])
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=DEADLINE_S)
    assert result.returncode == 141, result.stderr
    assert len(result.stdout.splitlines()) == 4 and "Traceback" not in result.stderr
    assert "stopped by SIGPIPE" in result.stderr and "resume with:" in result.stderr


def test_a_hang_up_that_is_ignored_stays_ignored(start, tmp_path):
    logdir = tmp_path / "run"
    process = start(
        "train", *SMALL, "--logdir", logdir, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    wait_step(logdir, 100, process)
    process.send_signal(signal.SIGHUP)
    wait_step(logdir, read_inserts(logdir) + 200, process)
    process.terminate()
    assert "stopped by SIGTERM" in finish(process)


def test_a_signal_to_every_process_is_a_stop_with_a_checkpoint(start, tmp_path):
    """What SLURM and Kubernetes do."""
    logdir = tmp_path / "run"
    process = start("train", *SMALL, "--run.save_every", 0, "--logdir", logdir)
    wait_step(logdir, 200, process)
    pids = pids_of_roles(logdir)
    for pid in (*pids, process.pid):
        os.kill(pid, signal.SIGTERM)
    output = finish(process)
    assert process.returncode == 143, output
    checkpoint = Checkpoints(logdir).latest()
    assert checkpoint and checkpoint.step >= 200 and checkpoint.missing == []
    check_counts(checkpoint)
    wait_gone(pids)


def test_a_stop_right_after_a_resume_keeps_the_step(start, tmp_path):
    logdir = tmp_path / "run"
    words = ["train", *SMALL, "--logdir", logdir]
    finish(start(*words, "--steps", 300))
    before = Checkpoints(logdir).latest()
    process = start(*words)
    wait_text(process, "[agent] resumed from")
    process.terminate()
    output = finish(process)
    after = Checkpoints(logdir).latest()
    assert before and after and after.name != before.name and after.step >= before.step, output
    check_counts(after)


@pytest.mark.parametrize("mode", MODES)
def test_a_second_interrupt_tells_its_cost_and_a_third_kills(start, tmp_path, mode):
    logdir = tmp_path / "run"
    agent = ["--agent", "mine:SlowToSave", "--run.save_every", 0, "--run.mode", mode]
    process = start("train", *SMALL, *agent, "--logdir", logdir)
    wait_step(logdir, 200, process)
    process.send_signal(signal.SIGINT)
    eventually((tmp_path / "saving").exists, "the last save")
    process.send_signal(signal.SIGINT)
    wait_text(process, "Ctrl-C again kills at once: the ")
    assert re.search(r"kills at once: the ([\d,]+ )?updates since the start are lost", process.output.read_text())
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode == 130, output


def test_a_directory_in_use_keeps_its_options(start, tmp_path):
    logdir = tmp_path / "run"
    first = start("train", *SMALL, "--logdir", logdir)
    wait_text(first, "[agent]")
    options = (logdir / "config.yaml").read_bytes()
    second = start("train", *SMALL, "--logdir", logdir, "--envs", 1, "--steps", 77)
    assert f"is in use by process {first.pid}" in finish(second) and second.returncode == 2
    assert (logdir / "config.yaml").read_bytes() == options
    first.terminate()
    finish(first)


def test_a_first_start_that_failed_does_not_bind_the_directory(start, tmp_path):
    logdir = tmp_path / "run"
    failed = start("train", *SMALL, "--agent", "mine:Missing", "--run.max_restarts", 1, "--logdir", logdir)
    assert "Missing" in finish(failed) and failed.returncode != 0
    mended = start("train", *SMALL, "--steps", 100, "--logdir", logdir)
    output = finish(mended)
    assert mended.returncode == 0 and output.startswith("new run"), output
    other = start("train", *SMALL, "--batch_size", 3, "--logdir", logdir)
    assert "holds a run with other options (batch_size" in finish(other) and other.returncode == 2


def test_a_remote_replay_that_is_gone_does_not_cost_the_checkpoint(start, tmp_path):
    logdir = tmp_path / "run"
    addresses = {role: f"localhost:{free_port()}" for role in ("actor", "replay", "logger")}
    words = [word for role, addr in addresses.items() for word in (f"--run.{role}_addr", addr)]
    remote = ["--run.remote_replay", True, "--run.stop_grace", 8, "--run.save_every", 0]
    main = start("train", *SMALL, *remote, *words, "--logdir", logdir)
    eventually((logdir / "run.key").exists, "the key of the run")
    key = ["--key", logdir / "run.key", "--logdir", tmp_path / "there"]
    replay = start("role", "replay", *SMALL, "--addr-replay", addresses["replay"], *key)
    wait_step(tmp_path / "there", 200, main)
    kill_below(replay)
    main.terminate()
    output = finish(main)
    assert main.returncode == 143, output
    checkpoint = Checkpoints(logdir).latest()
    assert checkpoint and checkpoint.missing == ["replay"] and checkpoint.manifest["updates"] > 0, output
    assert checkpoint.step > 0, "what the learner knew last"
    assert "without the part of the replay" in output


@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_of_another_agent_is_refused_without_restarts(start, tmp_path, mode):
    other, logdir = tmp_path / "other", tmp_path / "run"
    finish(start("train", *SMALL, "--steps", 200, "--logdir", other))
    words = ["--agent", "mine:Other", "--run.from_checkpoint", other, "--run.mode", mode]
    process = start("train", *SMALL, *words, "--logdir", logdir)
    output = finish(process)
    assert process.returncode == 2, output
    assert f"run.from_checkpoint='{other}' cannot be loaded by Other" in output and "(KeyError: 'weights')" in output
    assert "restarting" not in output and 'data["weights"]' in output, "the user's own line"
