"""The documented usage, as it is documented."""

import contextlib
import functools
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE, STDOUT

import cloudpickle
import pytest

import embodied
from dreamfleet import lifecycle
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import ConfigError
from dreamfleet.launch.combined import resolved_addresses
from dreamfleet.options import read_args
from dreamfleet.parallel import parallel_stream
from embodied.run.parallel import parallel_actor, parallel_agent, parallel_env, parallel_learner, parallel_replay
from tests.fleet import DEADLINE_S, free_port, make_args, make_factories, read_inserts

pytestmark = pytest.mark.distributed

SCRIPT = Path(__file__).with_name("seed_usage.py")
ROOT = SCRIPT.parents[2]


def parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_signatures():
    run = embodied.run.parallel
    factories = ["make_agent", "make_replay_train", "make_replay_eval", "make_env_train", "make_env_eval"]
    assert parameters(run.combined) == [*factories, "make_stream", "make_logger", "args"]
    assert parameters(parallel_agent) == ["make_agent", "args"]
    assert parameters(parallel_actor) == parameters(parallel_learner) == ["agent", "barrier", "args"]
    assert parameters(parallel_replay) == ["make_replay_train", "make_replay_eval", "make_stream", "args"]
    assert parameters(run.parallel_logger) == ["make_logger", "args"]
    assert parameters(parallel_env) == ["make_env", "envid", "args", "is_eval"]
    assert parameters(run.parallel_envs) == ["make_env_train", "make_env_eval", "args"]


def test_combined(tmp_path):
    args = make_args(tmp_path, steps=600)
    embodied.run.parallel.combined(*map(functools.partial, make_factories(args)), args)
    assert read_inserts(tmp_path) >= 600


def test_combined_takes_pickled_factories(tmp_path):
    args = make_args(tmp_path, steps=300)
    embodied.run.parallel.combined(*map(cloudpickle.dumps, make_factories(args)), args)
    assert read_inserts(tmp_path) >= 300


@pytest.mark.parametrize(("example", "transport"), [("launcher", "auto"), ("threads", "auto"), ("threads", "portal")])
def test_a_script_as_documented(tmp_path, example, transport):
    """With parts of a user's own, and nothing but documented arguments."""
    args = make_args(tmp_path / "run", steps=300, transport=transport, actor_batch=2, report_length=8)
    with tempfile.TemporaryDirectory() as short:  # names of sockets have a limit
        if example == "threads":  # each process has to know where the others are
            roles = ("actor", "replay", "logger")
            addrs = {f"{role}_addr": f"ipc:{short}/{role}" for role in roles}
            if transport != "auto":
                addrs = {key: f"localhost:{free_port()}" for key in addrs}
            args = args.update(addrs)
        command = [sys.executable, SCRIPT, example, json.dumps(dict(args.flat))]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, env=environ, stdout=PIPE, stderr=STDOUT, text=True, process_group=0) as script:
            try:
                output, _ = script.communicate(timeout=DEADLINE_S)
                assert script.returncode == 0, output
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(script.pid, signal.SIGKILL)
    assert example == "launcher" or int(re.search(r"^trained (\d+)$", output, re.MULTILINE)[1]) > 10
    checkpoint = Checkpoints(tmp_path / "run").latest()
    assert checkpoint and checkpoint.step >= 300 and not checkpoint.missing


def test_a_stream_of_batches_by_its_name():
    assert embodied.run.parallel.parallel_stream is parallel_stream
    assert parameters(parallel_stream)[:3] == ["replay", "mode", "prefetch"]


def test_failed_restore_does_not_leave_the_actor_waiting(tmp_path):
    class Unloadable:
        def init_train(self, batch_size):
            return ()

        def init_policy(self, batch_size):
            return ()

        def load(self, data, regex=None):
            raise ValueError("these are not my parameters")

    other = Checkpoints(tmp_path / "other")
    draft = other.draft(1)
    draft.write("agent", {"weights": 1})
    draft.commit({"updates": 1, "elapsed_s": 0.0})
    args = read_args(make_args(tmp_path, from_checkpoint=str(tmp_path / "other")))
    with resolved_addresses(args) as args:
        try:
            with pytest.raises(ConfigError, match=r"run.from_checkpoint=.*ValueError: these are not my parameters"):
                parallel_agent(Unloadable, args)
        finally:
            lifecycle.reset()
