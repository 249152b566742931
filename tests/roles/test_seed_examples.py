"""The documented usage, as it is documented."""

import functools
import inspect
import threading

import cloudpickle
import portal
import pytest

import embodied
from dreamfleet import lifecycle
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import ConfigError
from dreamfleet.launch.combined import env_specs, logger_spec, replay_spec, resolved_addresses
from dreamfleet.launch.supervise.supervisor import Supervisor
from dreamfleet.options import read_args
from embodied.run.parallel import parallel_actor, parallel_agent, parallel_env, parallel_learner, parallel_replay
from tests.fleet import DEADLINE_S, make_args, make_factories, read_inserts

pytestmark = pytest.mark.distributed


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


@pytest.mark.parametrize("transport", ["auto", "portal"])
def test_actor_and_learner_in_threads(tmp_path, transport):
    steps = 800 if transport == "auto" else 150
    args = read_args(make_args(tmp_path, steps=steps, transport=transport))
    make = make_factories(args)
    with resolved_addresses(args) as args:
        envs = env_specs(make.make_env_train, make.make_env_eval, args)
        others = [logger_spec(make, args), replay_spec(make, args), *envs]
        supervisor = Supervisor(others, tmp_path)
        background = threading.Thread(target=supervisor.run)
        background.start()
        try:
            agent = make.make_agent()
            barrier = threading.Barrier(2)
            workers = [
                portal.Thread(parallel_actor, agent, barrier, args),
                portal.Thread(parallel_learner, agent, barrier, args),
            ]
            portal.run(workers)
            assert agent.trained > 10
        finally:
            supervisor.request_stop("the test is over")
            background.join(DEADLINE_S)
            lifecycle.reset()
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint and checkpoint.step >= steps


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
