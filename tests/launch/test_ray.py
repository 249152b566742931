"""Fleets on a Ray cluster of several nodes, all on this machine: what dies comes back, and nothing is lost or left."""

import contextlib
import os
import re
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from benchmarks.chaos import invariants
from benchmarks.chaos.fleet import ChaosFleet
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import ConfigError
from dreamfleet.launch.invitation import read_invitation
from dreamfleet.launch.ray.fit import Bundle, Bundles, check_fit
from dreamfleet.launch.supervise.status import read_status
from tests.fleet import DEADLINE_S, eventually

# Ray has warnings of its own, and takes a node for dead that does not start within 30 s: not beside other tests.
pytestmark = [pytest.mark.chaos, pytest.mark.distributed, pytest.mark.filterwarnings("ignore")]

# A node counts as lost after three seconds; Ray's default is half a minute.
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 3}
MEETING = Path(__file__).parents[1] / "roles" / "gang" / "meeting.py"
NODE = {"num_cpus": 2, "labels": {"kind": "worker"}}
RUN = {
    "agent": "dreamfleet.agent.random:RandomAgent",
    "run.launcher": "ray",
    "run.envs": 4,
    "run.eval_envs": 0,
    "ray.agent_cpus": 0.5,  # and half a CPU is left on the first node, too little for a worker
}
OWN_MODULE = """
import os, sys
from benchmarks.chaos.faulty_env import FaultyEnv, own_index

def make():
    if own_index() is not None:
        assert os.environ["DREAMFLEET_MINE"] == "set"
        assert not {"ray", "jax"} & set(sys.modules)
    return FaultyEnv()
"""


class Nodes:
    """A cluster whose first node has the driver and the agent; the others, of two CPUs each, come and go."""

    def __init__(self):
        import ray  # which reads the environment
        from ray.cluster_utils import Cluster

        first = {"num_cpus": 1, "_system_config": HEALTH, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=first)
        self.address = self._cluster.address
        self.nodes = []
        ray.init(self.address, log_to_driver=False, logging_level="ERROR")

    def grow(self, count: int) -> None:
        """Has so many nodes beside the first."""
        while len(self.nodes) < count:
            with pytest.MonkeyPatch.context() as patch:
                patch.delenv("DREAMFLEET_TEST")  # marks what has to end with a test
                self.nodes.append(self._cluster.add_node(**NODE))

    def kill_node(self, pid: int) -> None:
        """Kills the raylet above a process, and with it what it has started."""
        above = {parent.pid for parent in psutil.Process(pid).parents()}
        (node,) = [node for node in self.nodes if raylet(node) in above]
        self.nodes.remove(node)
        os.kill(raylet(node), signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)

    def check_free(self) -> None:
        """Nothing of a run is left: no actor, no placement group, no resource that is taken."""
        eventually(self._is_free, "the cluster to be free")

    def _is_free(self) -> bool:
        import ray
        from ray._private.state import actors

        states = {actor["State"] for actor in actors().values()}
        groups = {group["state"] for group in ray.util.placement_group_table().values()}
        total, free = ray.cluster_resources(), ray.available_resources()
        return states <= {"DEAD"} and groups <= {"REMOVED"} and free.get("CPU") == total["CPU"]

    def close(self) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()


def raylet(node) -> int:
    return node.all_processes["raylet"][0].process.pid


def wait_for_nodes(patch) -> None:
    """Has Ray wait for its nodes, which on a busy machine take longer than the 30 s that it gives them."""
    patch.setenv("RAY_agent_register_timeout_ms", str(int(DEADLINE_S * 1000)))
    from ray._private import services

    get_node = services.get_node

    def find(*args):
        with contextlib.suppress(RuntimeError):
            return get_node(*args)

    patch.setattr(services, "get_node", lambda *args: eventually(lambda: find(*args), "a node of Ray"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        token = tmp_path_factory.mktemp("ray") / "token"
        token.write_text(os.urandom(32).hex())
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        wait_for_nodes(patch)
        cluster = Nodes()
        try:
            yield cluster
        finally:
            cluster.close()


@contextlib.contextmanager
def running(cluster, folder, **options):
    options = {**RUN, "ray.address": cluster.address, **{k.replace("__", "."): v for k, v in options.items()}}
    with ChaosFleet(folder, options=options) as fleet:
        fleet.control.pace_s = 0.01
        yield fleet


def check_ended(fleet, cluster) -> None:
    """After the end of a run: every step that was acknowledged is there once, and nothing is left."""
    cluster.check_free()
    verdict = invariants.check_data(fleet)
    invariants.check_ended(fleet, verdict)
    print(verdict)
    assert verdict.steps and verdict.lost_steps == verdict.doubled_steps == verdict.went_back == verdict.orphans == 0
    assert not verdict.leftovers


def kill(fleet, role: str, *, worker: bool = False) -> None:
    """Kills the process of a role, or the Ray worker above it, and waits until the role is back."""
    pid = fleet.pid(role)
    os.kill(psutil.Process(pid).ppid() if worker else pid, signal.SIGKILL)
    wait_back(fleet, role, pid)


def wait_back(fleet, role: str, pid: int) -> None:
    def is_back() -> bool:
        now = fleet.status()["roles"][role]
        return now["pid"] not in (None, pid) and now["state"] == "running"

    fleet.eventually(is_back, f"another {role}")


def kill_driver(fleet) -> None:
    """Kills the command itself, after which its roles end by themselves."""
    driver = fleet._processes.pop("train")
    driver.kill()
    driver.wait()
    eventually(lambda: not fleet.processes(), "the end of all roles")


def wait_running(fleet) -> None:
    def is_running() -> bool:
        roles = fleet.status()["roles"]
        return bool(roles) and all(role["state"] == "running" for role in roles.values())

    fleet.eventually(is_running, "all roles to run")


def test_a_run_ends_by_itself_with_modules_and_variables_of_its_user(cluster, tmp_path, monkeypatch):
    cluster.grow(2)
    (tmp_path / "mine.py").write_text(OWN_MODULE)
    monkeypatch.setenv("DREAMFLEET_MINE", "set")
    with running(cluster, tmp_path, task="mine:make", run__steps=600) as fleet:
        fleet.control.pace_s = 1.0  # until everything was looked at
        wait_running(fleet)
        parents = {raylet(node): 0 for node in cluster.nodes}
        for index in range(4):
            above = [parent.pid for parent in psutil.Process(fleet.pid(f"env{index}")).parents()]
            parents[next(pid for pid in above if pid in parents)] += 1
        assert sorted(parents.values()) == [2, 2], "the environments are spread"
        check_secrecy(fleet)
        fleet.control.pace_s = 0.0
        assert fleet.wait_end() == 0, fleet.output()
        checkpoint = Checkpoints(fleet.logdir).latest()
        assert checkpoint and checkpoint.step >= 600
        assert "incarnation 0" in (fleet.logdir / "logs/env3.log").read_text(), "output comes to the log directory"
        check_ended(fleet, cluster)


def check_secrecy(fleet) -> None:
    """Roles talk over TCP with a key that neither process lists nor logs show."""
    addresses = read_invitation(str(fleet.logdir)).addresses
    assert re.fullmatch(r"[\d.]+:\d+", addresses["actor"]) and addresses["replay"].startswith("ipc:")
    _, secret = (fleet.logdir / "run.key").read_bytes().split()
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            lines.append(path.read_bytes())
    environs = [(Path("/proc") / str(pid) / "environ").read_bytes() for pid in fleet.processes()]
    logs = [path.read_bytes() for path in (fleet.logdir / "logs").iterdir()]
    assert not any(secret in text for text in [*lines, *environs, *logs, fleet.output().encode()])


def test_what_is_killed_comes_back_and_no_step_is_lost(cluster, tmp_path):
    cluster.grow(2)
    with running(cluster, tmp_path) as fleet:
        wait_running(fleet)
        fleet.wait_training()
        for role in ("env1", "replay", "agent"):
            kill(fleet, role)
        for role in ("env2", "logger", "replay", "agent"):
            kill(fleet, role, worker=True)
        lost = {role: fleet.pid(role) for role in ("env0", "env1", "env2", "env3")}
        cluster.kill_node(lost["env0"])

        def count_waiting() -> int:
            roles = fleet.status()["roles"].values()
            return sum("ray" in wait["what"] for role in roles for wait in role["waits"])

        fleet.eventually(lambda: count_waiting() == 2, "two workers without a place")
        fleet.wait_training(100)
        cluster.grow(2)
        wait_back(fleet, "env0", lost["env0"])
        wait_running(fleet)
        fleet.wait_training()
        output = fleet.stop()
        assert "checkpoint step-" in output
        check_ended(fleet, cluster)
        before = fleet.counts().inserts
        fleet.start()
        fleet.wait_training()
        kill_driver(fleet)
        cluster.check_free()
        fleet.start()
        fleet.wait_training()
        fleet.stop()
        assert fleet.counts().inserts > before
        check_ended(fleet, cluster)


def test_a_run_with_a_shared_logdir_goes_on_without_the_node_of_its_agent(cluster, tmp_path):
    cluster.grow(3)
    shared = {"ray__shared_logdir": True, "ray__agent_labels": "kind=worker", "ray__wait": 60, "run__envs": 2}
    with running(cluster, tmp_path, **shared) as fleet:
        wait_running(fleet)
        fleet.wait_training()
        agent = fleet.pid("agent")
        cluster.kill_node(agent)
        wait_back(fleet, "agent", agent)
        fleet.wait_training()
        output = fleet.stop()
        assert "its node was lost" in output and "resuming on another node" in output
        check_ended(fleet, cluster)


def test_replicas_are_fleets_on_nodes_of_their_own_and_come_back_as_one(cluster, tmp_path):
    cluster.grow(2)
    shutil.copy(MEETING, tmp_path)  # the directory that the command is called in
    several = {"agent": "meeting:MeetingAgent", "run__replicas": 2, "run__save_every": 1}
    several |= {"task": "dummy_vector", "run__envs": 1}
    with running(cluster, tmp_path, **several) as fleet:

        def replica() -> dict:
            with contextlib.suppress(OSError):
                return read_status(fleet.logdir / "replica-1")["roles"]
            return {}

        def updates() -> list[int]:
            agents = [roles["agent"] for roles in (fleet.status()["roles"], replica()) if "agent" in roles]
            return [agent["figures"].get("new_updates", 0) for agent in agents]

        def wait_updates() -> None:
            fleet.eventually(lambda: len(updates()) == 2 and min(updates()) > 2, "updates of both replicas")

        wait_running(fleet)
        wait_updates()
        above = {parent.pid for parent in psutil.Process(replica()["agent"]["pid"]).parents()}
        assert above & {raylet(node) for node in cluster.nodes}
        fleet.eventually(lambda: Checkpoints(fleet.logdir).latest("agent"), "a checkpoint")

        agents = [fleet.pid("agent"), replica()["agent"]["pid"]]
        os.kill(agents[1], signal.SIGKILL)
        wait_back(fleet, "agent", agents[0])
        wait_updates()

        first, agent = fleet.pid("replica1"), fleet.pid("agent")
        cluster.kill_node(first)
        cluster.grow(2)
        wait_back(fleet, "replica1", first)
        wait_back(fleet, "agent", agent)
        wait_updates()
        check_secrecy(fleet)

        assert "checkpoint step-" in fleet.stop()
        assert not (fleet.logdir / "replica-1" / "ckpt").exists(), "replica 0 alone saves"
        cluster.check_free()
        assert not fleet.processes()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"agent": "meeting:MeetingAgent", "run.replicas": 3, "run.envs": 2},
            "run.replicas=3 needs a node with CPU 2.5 for each replica beside the first, and there is room for 0",
        ),
        ({"ray.agent_gpus": 1}, "ray.agent_gpus=1.0 does not fit: the node of this command, where logdir is"),
        ({"ray.worker_cpus": 3}, "ray.worker_cpus=3.0 does not fit: no node has CPU 3; largest node: "),
    ],
)
def test_a_bundle_that_does_not_fit_is_refused(cluster, tmp_path, options, text):
    cluster.grow(2)
    shutil.copy(MEETING, tmp_path)
    fleet = ChaosFleet(tmp_path, options={**RUN, "ray.address": cluster.address, **options})
    result = fleet.run_command("train", "--logdir", fleet.logdir)
    assert result.returncode == 2 and text in result.stderr, result.stderr
    assert not Checkpoints(fleet.logdir).latest()
    cluster.check_free()


def test_a_cluster_that_is_not_there_is_refused(tmp_path):
    fleet = ChaosFleet(tmp_path, options={**RUN, "ray.address": "127.0.0.1:1"})
    result = fleet.run_command("train", "--logdir", fleet.logdir)
    assert result.returncode == 2 and "ray.address='127.0.0.1:1' cannot be joined" in result.stderr, result.stderr


def test_without_a_cluster_one_is_started_and_ended(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")  # names of sockets have to be short
    with ChaosFleet(tmp_path, options={**RUN, "run.steps": 400}) as fleet:
        fleet.control.pace_s = 1.0
        wait_running(fleet)
        helpers = psutil.Process(fleet.pid("agent")).parents()
        assert any("raylet" in process.name() for process in helpers)
        assert read_invitation(str(fleet.logdir)).addresses["actor"].startswith("ipc:"), "all is on one machine"
        fleet.control.pace_s = 0.0
        assert fleet.wait_end() == 0, fleet.output()
        eventually(lambda: not fleet.processes(), "the end of the cluster")


NODES = [
    {"NodeManagerAddress": "10.0.0.1", "Labels": {"zone": "a"}, "Resources": {"CPU": 8.0}},
    {"NodeManagerAddress": "10.0.0.2", "Labels": {"zone": "b"}, "Resources": {"CPU": 4.0, "GPU": 1.0}},
]


@pytest.mark.parametrize(
    ("agent", "worker", "labels", "count", "error"),
    [
        ((1, 0), (1, 0), {}, 11, ""),
        ((1, 0), (1, 0), {}, 12, "ray.worker_cpus=1 leaves room for 11 of 12 .* 10.0.0.1 .CPU 8, GPU 0., 10.0.0.2"),
        ((4, 1), (1, 0), {}, 8, ""),
        ((4, 1), (1, 0), {}, 9, "room for 8 of 9"),
        ((4, 1), (1, 0), {"zone": "b"}, 1, "room for 0 of 1"),
        ((1, 2), (1, 0), {}, 1, "ray.agent_gpus=2 does not fit: no node has CPU 1, GPU 2; largest node: 10.0.0.2"),
        ((6, 1), (1, 0), {}, 1, "ray.agent_cpus=6 does not fit"),
        ((1, 0), (0, 0.25), {}, 4, ""),
        ((1, 0), (0, 0.25), {}, 5, "room for 4 of 5"),
        ((1, 0), (1, 0), {"zone": "c"}, 1, "ray.worker_labels='zone=c' no node has these labels"),
        ((1, 0), (1, 0), {"zone": "in(a,c)"}, 1, ""),
        ((1, 0), (1, 0), {"zone": "c"}, 0, ""),
    ],
)
def test_bundles_are_compared_with_what_nodes_have(agent, worker, labels, count, error):
    needs = [dict(zip(("CPU", "GPU"), amounts, strict=True)) for amounts in (agent, worker)]
    expected = pytest.raises(ConfigError, match=error) if error else contextlib.nullcontext()
    with expected:
        workers = Bundle("worker", needs[1], labels, count)
        check_fit(Bundles(Bundle("agent", needs[0]), workers, Bundle("replica", {}, count=0)), NODES)


@pytest.mark.parametrize(("cpus", "count", "room"), [(4, 3, None), (4, 4, 3), (9, 1, 0)])
def test_every_replica_needs_a_node_with_room_for_a_fleet(cpus, count, room):
    replicas = Bundle("replica", {"CPU": cpus}, count=count)
    reason = rf"run.replicas={count + 1} needs a node with CPU {cpus} for each .* there is room for {room}; nodes: 10.0"
    with contextlib.nullcontext() if room is None else pytest.raises(ConfigError, match=reason):
        check_fit(Bundles(Bundle("agent", {"CPU": 1}), Bundle("worker", {}, count=0), replicas), NODES)
