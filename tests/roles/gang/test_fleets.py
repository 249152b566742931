"""Gangs of whole fleets, started with the command: they end together, and start again together after any death."""

import re
import signal

import pytest

from dreamfleet.checkpoint import Checkpoints
from tests.fleet import DEADLINE_S, eventually, read_inserts
from tests.gang import Gang

pytestmark = pytest.mark.distributed

OPTIONS = {
    "agent": "meeting:MeetingAgent",
    "run.envs": 1,
    "run.train_ratio": 4,
    "run.save_every_steps": 50,
}


@pytest.fixture
def start(tmp_path):
    """Starts gangs, and ends them with the test."""
    gangs = []

    def start_one(**options) -> Gang:
        gangs.append(Gang(tmp_path / "run", **{**OPTIONS, **options}))
        return gangs[-1]

    yield start_one
    for gang in gangs:
        gang.close()


def test_a_gang_ends_as_one_and_replica_0_saves_and_scores_for_all(start):
    gang = start(**{"run.steps": 200})
    assert gang.finish() == [0, 0], "\n".join(map(gang.output, range(2)))
    checkpoint = Checkpoints(gang.logdir).latest("agent")
    updates = gang.read_updates()
    assert updates[0] == updates[1] == checkpoint.manifest["updates"] > 0
    assert checkpoint.read("agent")["total"] == 2 * updates[0]
    assert (gang.logdir / "scores.jsonl").stat().st_size
    other = gang.directories[1]
    assert not (other / "ckpt").exists() and not (other / "scores.jsonl").exists()
    assert not (other / "metrics.jsonl").exists() and read_inserts(other) > 0
    assert "complete: step" in gang.output(0) and "complete: step" in gang.output(1)


@pytest.mark.parametrize("victim", [1, 0])
def test_after_the_death_of_one_all_go_on_from_the_checkpoint(start, victim):
    gang = start(**{"run.steps": 1500})
    gang.wait(lambda: Checkpoints(gang.logdir).latest("agent"), "a checkpoint")
    gang.kill_agent(victim)
    gang.wait(lambda: all(gang.roles(replica)["agent"]["restarts"] for replica in range(2)), "restarts of both agents")
    assert gang.finish() == [0, 0], "\n".join(map(gang.output, range(2)))
    # Replica 0 may be back before the other has noticed that it was away.
    how = "((on|at) .* was lost|was restarted)"
    lost = f"ReplicaLost: replica {victim} {how}; going on from the last checkpoint: restarting"
    assert re.search(lost, gang.output(1 - victim)), gang.output(1 - victim)
    logs = [(path / "logs" / "agent.log").read_text() for path in gang.directories]
    assert "resumed from step-" in logs[0]
    generations = [re.findall(r"all 2 replicas are there: generation (\d+)", log) for log in logs]
    assert generations[0] == generations[1] and len(set(generations[0])) == len(generations[0]) >= 2
    updates = gang.read_updates()
    assert updates[0] == updates[1] == Checkpoints(gang.logdir).latest("agent").manifest["updates"]
    assert Checkpoints(gang.logdir).latest("agent").read("agent")["total"] == 2 * updates[0]


@pytest.mark.parametrize("victim", [1, 0])
def test_a_replica_whose_launcher_was_killed_is_waited_for(start, victim):
    gang = start()  # without an end, which it may come to before anybody notices
    gang.wait(lambda: Checkpoints(gang.logdir).latest("agent"), "a checkpoint")
    before = gang.roles(victim)["agent"]["pid"]
    gang.processes[victim].kill()
    gang.processes[victim].wait()

    def is_restarted():
        assert gang.processes[1 - victim].poll() is None, gang.output(1 - victim)
        return gang.roles(1 - victim).get("agent", {}).get("restarts")

    eventually(is_restarted, "the restart of the other agent")
    gang.processes[victim] = gang.start(victim)
    gang.wait(
        lambda: gang.roles(victim).get("agent", {}).get("pid") not in (None, before), "the agent of the lost replica"
    )
    gang.wait(lambda: gang.updates(0) and gang.updates(1), "updates")
    gang.processes[victim].send_signal(signal.SIGTERM)
    assert gang.finish() == [128 + signal.SIGTERM] * 2, "\n".join(map(gang.output, range(2)))
    assert Checkpoints(gang.logdir).latest("agent").read("agent")["total"] == 2 * gang.read_updates()[0]


def test_a_replica_that_fails_beside_its_learner_is_waited_for(start):
    gang = start(agent="meeting:ClumsyAgent", **{"run.steps": 300})
    assert gang.finish() == [0, 0], "\n".join(map(gang.output, range(2)))
    assert "RuntimeError: stumbled" in gang.output(1)
    assert "replica 1 on" in gang.output(0) and "was stopped" not in gang.output(0), gang.output(0)


def test_a_stop_of_one_replica_stops_the_other_in_order_with_a_checkpoint(start):
    gang = start()
    gang.wait(lambda: gang.updates(0) and gang.updates(1), "updates")
    gang.processes[1].send_signal(signal.SIGTERM)
    assert gang.finish() == [128 + signal.SIGTERM] * 2, "\n".join(map(gang.output, range(2)))
    assert "stopped by replica 1" in gang.output(0) and "stopped by SIGTERM" in gang.output(1)
    updates = gang.read_updates()
    assert updates[0] == updates[1] == Checkpoints(gang.logdir).latest("agent").manifest["updates"]


def test_a_replica_that_waits_for_the_others_says_so_and_can_be_stopped(start):
    gang = start()
    gang.processes.pop().kill()  # before it can have joined
    gang.wait(lambda: "gang: other replicas (1)" in str(gang.roles(0).get("agent")), "a named wait")
    gang.wait(lambda: "waiting for the other replicas (1)" in gang.output(0), "a line about it")
    gang.processes[0].send_signal(signal.SIGTERM)
    assert gang.processes[0].wait(DEADLINE_S) == 128 + signal.SIGTERM


def test_an_agent_that_cannot_be_one_of_several_is_refused(start):
    gang = start(agent="meeting:LoneAgent")
    gang.processes.pop().kill()  # it is refused at once, not when the others are there
    assert gang.finish() == [2]
    assert "has no join_replicas, share_state, prepare_update, which run.replicas=2 needs" in gang.output(0)
