"""Two real learners train one Dreamer; the agent process of one is killed, and both go on from the checkpoint."""

import re

import pytest

from dreamfleet.checkpoint import Checkpoints
from tests.gang import Gang

pytestmark = [pytest.mark.distributed, pytest.mark.chaos]


@pytest.mark.parametrize("victim", [1, 0])
def test_a_gang_of_dreamers_goes_on_from_its_checkpoint(tmp_path, victim):
    options = {"run.envs": 1, "run.train_ratio": 8, "run.steps": 1000, "run.save_every_steps": 100}
    gang = Gang(tmp_path / "run", **options)
    try:
        gang.wait(lambda: Checkpoints(gang.logdir).latest("agent"), "a checkpoint")
        gang.kill_agent(victim)
        assert gang.finish() == [0, 0], "\n".join(map(gang.output, range(2)))
        outputs = [gang.output(replica) for replica in range(2)]
    finally:
        gang.close()
    assert re.search(f"ReplicaLost: replica {victim} (on|at) .* was lost; going on from the last", outputs[1 - victim])
    assert "resumed from step-" in (gang.logdir / "logs" / "agent.log").read_text()
    checkpoint = Checkpoints(gang.logdir).latest("agent")
    assert gang.read_updates() == [checkpoint.manifest["updates"]] * 2
    assert int(checkpoint.read("agent")["learning/updates"]) == checkpoint.manifest["updates"]
