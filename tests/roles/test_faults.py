"""Processes that die while a fleet runs: the run goes on to its end, and its counts stay consistent."""

import json

import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import RunFailed
from dreamfleet.testing import CountingAgent, CountingEnv
from tests.fleet import count_rebuilds, gated_fleet, make_args, read_inserts, read_jsonl, running_fleet

pytestmark = pytest.mark.distributed

STEPS = 4000


@pytest.mark.parametrize("role", ["env1", "logger", "replay", "agent"])
def test_run_goes_on_after_kill(tmp_path, role):
    args = make_args(tmp_path, steps=STEPS)
    with gated_fleet(args, episodes=60) as fleet:
        fleet.wait_step(800)
        # Something to come back to, for the roles that restore.
        fleet.wait_role("agent", lambda _: Checkpoints(tmp_path).latest() is not None)
        at_kill = fleet.step()
        old = fleet.kill(role)
        revived = fleet.wait_role(role, lambda r: r["state"] == "running" and r["pid"] != old)
        assert revived["restarts"] == 1
        assert fleet.step() >= at_kill, "committed steps are never taken back"
    check_end(tmp_path)
    assert count_rebuilds(tmp_path) == 0, "an environment got an action that was not its own"


def check_end(logdir) -> None:
    """The final checkpoint, the counts and the metrics of a run that reached its steps agree with each other."""
    checkpoint = Checkpoints(logdir).latest()
    assert checkpoint and checkpoint.step >= STEPS
    assert checkpoint.manifest["replay"]["inserts"] <= read_inserts(logdir)
    assert int(checkpoint.read("agent")["trained"]) == checkpoint.manifest["updates"]
    replayed = checkpoint.manifest["updates"] * 4 * 8
    assert replayed / checkpoint.step == pytest.approx(8.0, rel=0.1), "the ratio holds over a restart"
    steps = [line["step"] for line in read_jsonl(logdir / "metrics.jsonl")]
    assert steps == sorted(steps), "the step in the metrics never goes back"
    scores = {line["episode/score"] for line in read_jsonl(logdir / "scores.jsonl") if "episode/score" in line}
    assert scores == {10.0}, "no episode is scored that was not seen whole"


def test_environments_that_stay_dead_do_not_stop_the_others(tmp_path):
    args = make_args(tmp_path, steps=2500, envs=8, eval_envs=0, actor_batch=8, restart=False)
    with gated_fleet(args, episodes=20) as fleet:
        fleet.wait_step(300)
        for name in ("env1", "env4", "env6"):
            fleet.kill(name)
    states = {name: role["state"] for name, role in json.loads((tmp_path / "status.json").read_text())["roles"].items()}
    assert {name for name, state in states.items() if state == "dead"} == {"env1", "env4", "env6"}
    assert read_inserts(tmp_path) >= 2500


class FailingEnv(CountingEnv):
    """Raises at one step of every fifth episode, until it is rebuilt."""

    def step(self, action: dict) -> dict:
        if self._episode == 4 and self._step == 3:
            raise ValueError("the simulator broke")
        return super().step(action)


def test_an_environment_that_raises_is_rebuilt(tmp_path):
    with running_fleet(make_args(tmp_path), make_env=FailingEnv) as fleet:
        fleet.join()
    log = (tmp_path / "logs" / "env0.log").read_text()
    assert "the simulator broke" in log and "test_faults.py" in log, "the traceback names the user's file"
    status = json.loads((tmp_path / "status.json").read_text())
    assert all(role["restarts"] == 0 for role in status["roles"].values())


def never_starts(index: int) -> CountingEnv:
    raise RuntimeError("no licence for this simulator")


def test_a_role_that_never_starts_fails_the_run_with_its_traceback(tmp_path):
    args = make_args(tmp_path, max_restarts=2)
    with (
        pytest.raises(RunFailed, match=r"(?s)never_starts.*no licence for this simulator"),
        running_fleet(args, make_env=never_starts) as fleet,
    ):
        fleet.join()


class CluelessAgent(CountingAgent):
    """Cannot act."""

    def policy(self, carry, obs, mode="train"):
        raise ZeroDivisionError("no idea what to do")


def test_a_policy_that_raises_is_the_cause_of_the_failure(tmp_path):
    args = make_args(tmp_path, max_restarts=2)
    with (
        pytest.raises(RunFailed, match=r"(?s)agent.*test_faults.py.*no idea what to do"),
        running_fleet(args, CluelessAgent) as fleet,
    ):
        fleet.join()


def test_without_restarts_any_failure_ends_the_run(tmp_path):
    args = make_args(tmp_path, max_restarts=0, steps=0)
    with pytest.raises(RunFailed, match=r"env0.*SIGKILL"), running_fleet(args) as fleet:
        fleet.wait_step(300)
        fleet.kill("env0")
        fleet.join()


def test_second_run_in_the_same_directory_is_refused(tmp_path):
    args = make_args(tmp_path, steps=1000)
    with gated_fleet(args, episodes=10) as fleet:
        fleet.wait_step(50)
        with pytest.raises(Exception, match="is in use by process"), running_fleet(args) as second:
            second.join()


def test_a_killed_eval_environment_does_not_stop_the_run(tmp_path):
    args = make_args(tmp_path, eval_envs=2, steps=1500)
    with gated_fleet(args, episodes=30) as fleet:
        fleet.wait_step(200)
        fleet.kill("env4")
    assert read_inserts(tmp_path) >= 1500


def test_no_wait_is_silent(tmp_path):
    args = make_args(tmp_path, envs=2, eval_envs=0, steps=0, remote_envs=True, max_restarts=0)
    with pytest.raises(RunFailed, match="logger"), running_fleet(args) as fleet:
        for name, awaited in (("agent", "replay"), ("replay", "environments")):
            fleet.wait_role(name, lambda role, what=awaited: role["waits"] and what in role["waits"][0]["what"])
        fleet.kill("logger")
        fleet.join()
