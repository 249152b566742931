"""Plain portal programs, which know only the documented messages, in the place of each role of a fleet."""

import contextlib
import functools
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import elements
import pytest

from dreamfleet.checkpoint import Checkpoints
from dreamfleet.envs import EnvGroup
from dreamfleet.errors import ConfigError
from dreamfleet.launch.combined import env_specs, logger_spec, replay_spec
from dreamfleet.launch.supervise.supervisor import Supervisor
from dreamfleet.metrics.progress import read_progress
from dreamfleet.options import SERVERS, read_args
from dreamfleet.roles.env import EnvWorker
from dreamfleet.roles.wiring import connect
from dreamfleet.rpc.portal.guard import portal
from dreamfleet.testing import CountingEnv
from tests.fleet import (
    DEADLINE_S,
    eventually,
    free_port,
    is_open,
    make_args,
    make_factories,
    read_inserts,
    read_jsonl,
    running_fleet,
)
from tests.roles.test_elsewhere import LOGGER_SCRIPT, REPLAY_SCRIPT

pytestmark = pytest.mark.distributed

PROGRAMS = Path(__file__).parent / "portal_peers.py"
STEPS = 100  # plain programs spin: a fleet makes a few dozen steps a second
MORE = 4  # rows of requests that were under way at the end


class Peers:
    """Programs under way, each with what it printed in a file."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack):
        self._directory, self._stack = directory, stack
        self._programs: dict[Path, subprocess.Popen] = {}

    def start(self, role: str, **options) -> None:
        self.run(f"{role}{len(self._programs)}", str(PROGRAMS), role, json.dumps(options))

    def run(self, name: str, *words: str) -> subprocess.Popen:
        path = self._directory / f"{name}.txt"
        file = self._stack.enter_context(path.open("w"))
        program = subprocess.Popen([sys.executable, "-u", *words], stdout=file, stderr=subprocess.STDOUT)
        self._stack.callback(program.wait)
        self._stack.callback(program.kill)
        self._programs[path] = program
        return program

    def wait_started(self) -> None:
        """Waits until each has said a word."""
        for path in self._programs:
            eventually(lambda path=path: path.read_text(), path.name)

    def check_alive(self) -> None:
        for path, program in self._programs.items():
            assert program.poll() is None, path.read_text()

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Waits for a condition, as long as all of them live."""
        eventually(lambda: self.check_alive() or condition(), what)


@pytest.fixture
def peers(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Peers(tmp_path, stack)


@pytest.fixture
def addresses() -> dict[str, str]:
    return {f"{role}_addr": f"localhost:{free_port()}" for role in SERVERS}


def ask_facts(addr: str) -> dict:
    client = portal.Client(addr, logging=False)
    try:
        return client.facts().result(DEADLINE_S)
    finally:
        client.close(DEADLINE_S)


def only(addresses: dict[str, str], role: str) -> dict[str, str]:
    return {f"{role}_addr": addresses[f"{role}_addr"]}


def test_our_agent_with_environments_replay_and_logger_of_others(tmp_path, peers, addresses):
    peers.start("replay", **only(addresses, "replay"))
    peers.start("logger", **only(addresses, "logger"))
    for envid in range(3):
        peers.start("env", **only(addresses, "actor"), envid=envid, is_eval=envid == 2)
    peers.wait_started()
    remote = {f"remote_{role}": True for role in ("envs", "replay", "logger")}
    updates = 0
    for steps in (STEPS, 2 * STEPS):
        args = make_args(
            tmp_path / "run", **addresses, **remote, steps=steps, envs=2, transport="portal", report_every=0.01
        )
        with running_fleet(args) as fleet:
            fleet.join()
        peers.check_alive()  # also the environments, whose policy server is gone
        checkpoint = Checkpoints(tmp_path / "run").latest()
        assert checkpoint and checkpoint.parts == ["agent"] and checkpoint.missing == []
        assert checkpoint.manifest["counts"]["inserts"] == checkpoint.step == steps, "the actor's batches have one row"
        assert checkpoint.manifest["updates"] > updates, "it goes on where it was"
        updates = checkpoint.manifest["updates"]
        progress = read_progress(tmp_path / "run")
        assert progress and progress.step >= steps
    stored, logged = (ask_facts(addresses[f"{role}_addr"]) for role in ("replay", "logger"))
    assert stored["rows"] == read_inserts(tmp_path / "run") == 2 * STEPS, "what was acknowledged is what was counted"
    assert stored["eval_rows"] > 0
    assert "_meta" not in stored["keys"] + logged["keys"] and "update echo" in stored["keys"]
    assert stored["report"] > 0 and stored["eval"] > 0, "there were reports"
    assert {"train/updates", "report/reported", "eval/reported"} <= set(logged["metrics"].split())
    assert logged["episodes"] > 0 and [float(score) for score in logged["scores"]] == [10.0]


def test_a_logger_of_others_costs_our_own_replay_elsewhere_nothing(tmp_path, peers, addresses):
    run, there = tmp_path / "run", tmp_path / "there"
    options = {**addresses, "transport": "portal", "steps": STEPS, "report_every": 0.01}
    peers.start("logger", **only(addresses, "logger"))
    words = "-c", REPLAY_SCRIPT, json.dumps({**options, "logdir": str(there)})
    replay = peers.run("replay", *words)
    args = make_args(run, **options, remote_replay=True, remote_logger=True)
    factories = make_factories(args, make_env=functools.partial(CountingEnv, image_size=4))
    with running_fleet(args, factories=factories) as fleet:
        fleet.join()
    peers.check_alive()
    replay.terminate()
    replay.wait(DEADLINE_S)
    own, kept = Checkpoints(run).latest(), Checkpoints(there).latest()
    assert own and kept and own.name == kept.name
    assert (own.parts, kept.parts, own.missing) == (["agent"], ["replay"], [])
    assert STEPS <= own.manifest["counts"]["inserts"] <= read_inserts(there) < STEPS + MORE
    assert own.manifest["counts"]["items"] > 0, "the replay has said so itself"
    logged = ask_facts(addresses["logger_addr"])
    assert "_meta" not in logged["keys"] and "report/reported" in logged["metrics"].split()
    assert logged["filmed"] == logged["heard"] != "none", "not only the first environment"


def test_our_own_logger_elsewhere_is_known_as_ours(tmp_path, peers, addresses):
    run, there = tmp_path / "run", tmp_path / "there"
    options = {**addresses, "transport": "portal", "steps": STEPS}
    logger = peers.run("logger", "-c", LOGGER_SCRIPT, json.dumps({**options, "logdir": str(there)}))
    peers.wait(lambda: is_open(addresses["logger_addr"]), "the logger, which a short run would not wait for")
    with running_fleet(make_args(run, **options, remote_logger=True)) as fleet:
        fleet.join()
    peers.check_alive()
    logger.terminate()
    assert logger.wait(DEADLINE_S) == 0, "it has written what was left"
    own, kept = Checkpoints(run).latest(), Checkpoints(there).latest()
    assert own and kept and own.name == kept.name
    assert (own.parts, kept.parts, own.missing) == (["agent", "replay"], ["logger"], [])
    progress = read_progress(there)
    assert progress and progress.step >= STEPS and progress.episodes >= kept.read("logger")["episodes"] > 0
    scores = read_jsonl(there / "scores.jsonl") + read_jsonl(there / "eval_scores.jsonl")
    assert len(scores) == progress.episodes, "each episode has its line"
    assert any("learner/updates" in line for line in read_jsonl(there / "metrics.jsonl"))


class OtherOrderEnv(CountingEnv):
    """Names its spaces in another order than its observations have."""

    def __init__(self, index: int = 0):
        super().__init__(index)
        self.obs_space = dict(reversed(self.obs_space.items()))


def test_an_agent_of_others_with_environments_replay_and_logger_of_ours(tmp_path, peers, addresses):
    """Their environment and ours share each of their batches; both lives end in order, the second goes on."""
    peers.start("agent", **addresses)
    peers.start("env", **only(addresses, "actor"), envid=1)
    args = make_args(tmp_path, **addresses, envs=1, eval_envs=0, transport="portal", save_every=0.1, steps=0)
    options, make = read_args(args), make_factories(args, make_env=OtherOrderEnv)
    specs = [logger_spec(make, options), replay_spec(make, options), *env_specs(OtherOrderEnv, OtherOrderEnv, options)]
    before = shown = 0
    for life in range(2):
        supervisor = Supervisor(specs, tmp_path / f"life{life}")
        thread = threading.Thread(target=supervisor.run)
        thread.start()
        try:
            peers.wait(lambda step=before + STEPS: read_inserts(tmp_path) >= step, "steps")
            peers.wait(lambda step=before: has_newer_checkpoint(tmp_path, step), "a checkpoint that nobody asked for")
            peers.wait(lambda step=shown: shown_step(tmp_path) > step, "the step to go on from where it was")
        finally:
            supervisor.request_stop("the life is over")
            thread.join(DEADLINE_S)
        before, shown = read_inserts(tmp_path), shown_step(tmp_path)
        checkpoint = Checkpoints(tmp_path).latest("replay")
        assert checkpoint and checkpoint.step == before, "the last rows are in the last checkpoint"
        assert abs(shown - before) <= 64, "what was under way when a role stopped may be lost to it"
    peers.check_alive()
    metrics = read_jsonl(tmp_path / "metrics.jsonl")
    assert any("train/updates" in line for line in metrics)
    assert {line["orders"] for line in metrics if "orders" in line} == {1.0}
    scores = read_jsonl(tmp_path / "scores.jsonl")
    assert scores and {line["episode/score"] for line in scores} == {10.0}


def has_newer_checkpoint(logdir: Path, step: int) -> bool:
    checkpoint = Checkpoints(logdir).latest("replay", is_deep=False)
    return checkpoint is not None and checkpoint.step > step


def shown_step(logdir: Path) -> int:
    progress = read_progress(logdir)
    return progress.step if progress else 0


def test_several_environments_a_worker_are_refused_where_the_policy_server_knows_one(tmp_path, addresses):
    server = portal.Server(addresses["actor_addr"], "Actor", host="127.0.0.1", logging=False)
    server.bind("act", lambda obs: {})
    server.start(block=False)
    options = read_args(elements.Config(logdir=str(tmp_path), transport="portal", **addresses))
    try:
        actor = connect(options, "actor", "env0", me="env")
        worker = EnvWorker(EnvGroup(CountingEnv, [0, 1]), [0, 1], False, actor, DEADLINE_S)
        refusal = r"run.envs_per_worker=2 .*knows no act_many; set it to 1"
        with contextlib.closing(worker), pytest.raises(ConfigError, match=refusal):
            worker.wait_for_actor()
        assert server.running
    finally:
        server.close(DEADLINE_S)
