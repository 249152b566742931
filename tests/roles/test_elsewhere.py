"""Roles that a script of its own starts from Python, with a log directory of its own, as on another machine."""

import json
import signal
import subprocess
import sys
import textwrap

import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.options import SERVERS
from dreamfleet.rpc.keys import make_key
from tests.documented import DOCS, read_blocks
from tests.fleet import DEADLINE_S, free_port, make_args, read_inserts, running_fleet

pytestmark = pytest.mark.distributed

REPLAY_SCRIPT = textwrap.dedent("""
    import json, sys
    from dreamfleet import parallel
    from tests.fleet import make_args, make_factories

    args = make_args(**json.loads(sys.argv[1]))
    factories = make_factories(args)
    parallel.parallel_replay(factories.make_replay_train, factories.make_replay_eval, factories.make_stream, args)
""")

SCRIPT_START = REPLAY_SCRIPT[: REPLAY_SCRIPT.rindex("parallel.")]
LOGGER_SCRIPT = SCRIPT_START + "parallel.parallel_logger(factories.make_logger, args)\n"


def test_a_replay_of_a_script_keeps_its_part_of_the_checkpoints(tmp_path):
    """With the script that the documentation shows."""
    make_key(tmp_path / "run.key")
    options = {"replay_addr": f"localhost:{free_port()}", "key_file": str(tmp_path / "run.key"), "steps": 500}
    run, there = tmp_path / "run", tmp_path / "there"

    (shown,) = [block for block in read_blocks(DOCS / "python.md", "python") if "parallel_replay(" in block]
    for ours, theirs in (("replay-host:5002", options["replay_addr"]), ("run.key", options["key_file"])):
        shown = shown.replace(ours, theirs)
    code = f"{SCRIPT_START}_, make_replay, make_replay_eval, *_, make_stream, _ = factories\n{shown}"
    script = [sys.executable, "-c", code.replace("/data/replay", str(there)), json.dumps({"logdir": str(there)})]
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "call",
    [
        "parallel_logger(telling(factories.make_logger), args)",
        "parallel_replay(telling(factories.make_replay_train), *factories[2:3], factories.make_stream, args)",
        "parallel_env(telling(factories.make_env_train), 0, args)",
        "parallel_agent(telling(factories.make_agent), args)",
    ],
)
def test_a_role_of_a_script_ends_in_order_when_a_signal_asks_for_it(tmp_path, call, number):
    tell = "def telling(make):\n    return lambda *args: print('begun', flush=True) or make(*args)\n\n"
    script = f"{SCRIPT_START}{tell}parallel.{call}\nprint('ended in order')\n"
    options = {
        "logdir": str(tmp_path),
        "stop_grace": 4.0,
        **{f"{role}_addr": f"ipc:{tmp_path}/{role}.socket" for role in SERVERS},
    }
    words = [sys.executable, "-c", script, json.dumps(options)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as role:
        try:
            assert role.stdout and role.stdout.readline() == "begun\n"
            role.send_signal(number)
            printed, _ = role.communicate(timeout=DEADLINE_S)
        finally:
            role.kill()
    assert printed.splitlines()[-1] == "ended in order" and role.returncode == 0


@pytest.mark.parametrize("script", [REPLAY_SCRIPT, LOGGER_SCRIPT])
def test_a_role_of_a_script_must_be_told_where_it_listens(tmp_path, script):
    words = [sys.executable, "-c", script, json.dumps({"logdir": str(tmp_path)})]
    told = subprocess.run(words, stderr=subprocess.PIPE, text=True)
    assert told.returncode == 1
    assert "_addr='ipc:{auto}' is filled in only for roles that a launcher starts together" in told.stderr
