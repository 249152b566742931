"""An environment that hangs is killed, rebuilt and counted; one that is only slow is left alone."""

import os
import threading

import pytest

from dreamfleet import lifecycle
from dreamfleet.errors import RunFailed
from dreamfleet.launch.supervise.process_tree import TOKEN_VARIABLE
from dreamfleet.testing import CountingEnv
from tests.fleet import eventually, make_args, read_inserts, running_fleet

pytestmark = pytest.mark.distributed

TIMEOUT_S = 2.0


class HangsOnce(CountingEnv):
    """Environment 1 hangs in the third episode of its first process."""

    def __init__(self, index: int = 0):
        super().__init__(index)
        self._hangs = index == 1 and os.environ.get(TOKEN_VARIABLE, "").endswith("/env1/0")

    def step(self, action: dict) -> dict:
        if self._hangs and self._episode == 2 and self._step == 4:
            threading.Event().wait()
        return super().step(action)


def test_a_hung_environment_is_killed_rebuilt_and_counted(tmp_path):
    args = make_args(tmp_path, steps=0, train_ratio=0.0, env_timeout=TIMEOUT_S, agent_process=False)
    with running_fleet(args, make_env=HangsOnce) as fleet:
        role = fleet.wait_role("env1", lambda role: role["hangs"] == 1 and role["state"] == "running")
        assert role["restarts"] == 1
        assert "environment 1: step has taken" in role["exit"]
        others = fleet.status()["roles"]
        assert all(others[name]["hangs"] == 0 for name in ("env0", "env2", "agent", "replay", "logger"))
        lifecycle.request_stop()  # of the agent, which is a thread here, and with it of the run
        fleet.join()
    log = (tmp_path / "logs" / "env1.log").read_text()
    assert "in step" in log and "test_hanging_environments.py" in log, "the stack shows where it hung"


class HangsAtBirth(CountingEnv):
    """Environment 0 never gets as far as its first step."""

    def __init__(self, index: int = 0):
        super().__init__(index)
        if index == 0 and threading.current_thread() is threading.main_thread():
            threading.Event().wait()


def test_an_environment_whose_construction_hangs_ends_the_run_with_the_cause(tmp_path):
    args = make_args(tmp_path, steps=0, env_timeout=TIMEOUT_S, max_restarts=2)
    with (
        pytest.raises(RunFailed, match=r"env0 failed: .*environment 0: construction has taken"),
        running_fleet(args, make_env=HangsAtBirth) as fleet,
    ):
        fleet.join()


def test_what_goes_on_is_shown_and_its_limit_kept():
    lifecycle.reset()
    limit = lifecycle.Limit(0.01)
    assert lifecycle.overdue() is None
    limit.begin("environment 3: step")
    eventually(lifecycle.overdue, "the limit")
    assert lifecycle.waits()[0]["what"] == "environment 3: step"
    assert "environment 3: step has taken" in (lifecycle.overdue() or "")
    limit.end()
    assert lifecycle.overdue() is None and lifecycle.waits() == []
    lifecycle.reset()


def test_without_a_limit_nothing_is_overdue():
    lifecycle.reset()
    limit = lifecycle.Limit(0.0)
    limit.begin("environment 3: step")
    assert lifecycle.overdue() is None
    lifecycle.reset()


def test_a_slow_environment_is_left_alone(tmp_path):
    args = make_args(tmp_path, steps=100, train_ratio=0.0, env_timeout=30.0)
    with running_fleet(args, make_env=Slow) as fleet:
        fleet.join()
        roles = fleet.status()["roles"]
    assert all(role["hangs"] == role["restarts"] == 0 for role in roles.values())
    assert read_inserts(tmp_path) >= 100


class Slow(CountingEnv):
    """Environment 1 takes two seconds for its second step."""

    def step(self, action: dict) -> dict:
        if self._index == 1 and self._episode == 0 and self._step == 1:
            threading.Event().wait(2.0)
        return super().step(action)
