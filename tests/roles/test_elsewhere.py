"""Roles that a script of its own starts from Python, with a log directory of its own, as on another machine."""

import json
import subprocess
import sys
import textwrap

import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.rpc.keys import make_key
from tests.fleet import DEADLINE_S, make_args, read_inserts, running_fleet
from tests.test_runs import free_port

pytestmark = pytest.mark.distributed

REPLAY_SCRIPT = textwrap.dedent("""
    import json, sys
    from dreamfleet import parallel
    from tests.fleet import make_args, make_factories

    args = make_args(**json.loads(sys.argv[1]))
    factories = make_factories(args)
    parallel.parallel_replay(factories.make_replay_train, factories.make_replay_eval, factories.make_stream, args)
""")


def test_a_replay_of_a_script_keeps_its_part_of_the_checkpoints(tmp_path):
    make_key(tmp_path / "run.key")
    options = {"replay_addr": f"localhost:{free_port()}", "key_file": str(tmp_path / "run.key"), "steps": 500}
    run, there = tmp_path / "run", tmp_path / "there"

    script = [sys.executable, "-c", REPLAY_SCRIPT, json.dumps({**options, "logdir": str(there)})]
    with subprocess.Popen(script, stderr=subprocess.PIPE, text=True) as replay:
        try:
            with running_fleet(make_args(run, **options, remote_replay=True)) as fleet:
                fleet.join()
            replay.terminate()
            _, errors = replay.communicate(timeout=DEADLINE_S)
        finally:
            replay.kill()
    assert read_inserts(there) >= 500
    own, kept = Checkpoints(run).latest(), Checkpoints(there).latest()
    assert own and kept and own.name == kept.name
    assert (list(own.parts), list(kept.parts)) == (["agent", "logger"], ["replay"]), errors
