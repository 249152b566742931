"""Roles behind relays, as on a Ray cluster, with the calls of Ray replaced by threads of this process."""

import functools
import importlib.util
import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from dreamfleet.errors import RunFailed
from dreamfleet.launch.ray.relay import Relay, settle
from dreamfleet.launch.supervise.process import Launch
from dreamfleet.launch.topology import RestartPolicy, RoleSpec
from tests.launch import targets

# Not imported here: Ray reads its environment once, and tests with a cluster have one of their own.
needs_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="needs Ray")
pytestmark = [pytest.mark.distributed, needs_ray]


class Actor:
    """Answers like an actor of Ray; `breaks` is raised in place of the next answers."""

    def __init__(self, launch: Launch, threads: ThreadPoolExecutor):
        self.relay = Relay(launch)
        self.breaks: list[Exception] = []
        self._threads = threads

    def __getattr__(self, name: str):
        return SimpleNamespace(remote=functools.partial(self._call, name))

    def _call(self, name: str):
        if self.breaks and name == "next":
            (future := Future()).set_exception(self.breaks.pop())
        else:
            future = self._threads.submit(getattr(self.relay, name))
        return SimpleNamespace(future=lambda: future)


@pytest.fixture
def actors():
    """Those that were started, in order; `actors.start` starts the roles of a supervisor."""
    from dreamfleet.launch.ray.role import RayRole

    started = []
    with ThreadPoolExecutor(16) as threads:

        def start(spec, launch, log_file, wake):
            started.append(Actor(launch, threads))
            return RayRole(started[-1], log_file, wake, explain)

        yield SimpleNamespace(started=started, start=start)


def explain(error: Exception) -> dict:
    nothing = {"frames": "", "traceback": "", "is_refusal": False, "is_fatal": False, "state": "dead", "at": 0.0}
    return {"kind": "failure", "summary": f"lost: {error}", **nothing}


def test_what_a_role_says_and_prints_comes_to_the_log_directory(fleet, actors):
    fleet.journal.on("main", "ready", fleet.request_stop)
    fleet.run(RoleSpec("main", targets.log_and_serve, is_main=True), start_role=actors.start)
    assert ("main", "warning", "careful: üüü") in fleet.journal.lines
    written = (fleet.logdir / "logs/main.log").read_text()
    assert all(part in written for part in ("main WARNING careful: üüü", "printed", "incarnation 0"))


def test_a_role_that_is_killed_is_restarted(fleet, actors):
    fleet.journal.on("main", r"ready pid=(\d+)", lambda match: os.kill(int(match[1]), signal.SIGKILL))
    fleet.journal.on("main", "restarting", lambda _: fleet.journal.on("main", "ready", fleet.request_stop))
    fleet.run(RoleSpec("main", targets.serve, is_main=True), start_role=actors.start)
    assert fleet.journal.find("main", "killed by SIGKILL: restarting") and len(actors.started) == 2


def test_a_relay_that_is_out_of_reach_for_a_while_is_asked_again(fleet, actors):
    from ray.exceptions import ActorUnavailableError

    def interrupt(_) -> None:
        actors.started[0].breaks += [ActorUnavailableError("no route", None)] * 2
        fleet.journal.on("main", "received SIGTERM", fleet.request_stop)
        os.kill(int(fleet.journal.find("main", r"ready pid=(\d+)")[0][1]), signal.SIGTERM)

    fleet.journal.on("main", "ready", interrupt)
    fleet.run(RoleSpec("main", targets.serve, is_main=True), start_role=actors.start)
    assert not actors.started[0].breaks and len(actors.started) == 1


def test_a_relay_that_has_died_is_replaced_and_ends_what_it_left(fleet, actors, is_gone):
    pids = []

    def lose(match) -> None:
        pids.append(int(match[1]))
        actors.started[0].breaks.append(RuntimeError("worker died"))

    fleet.journal.on("main", r"ready pid=(\d+)", lose)
    fleet.journal.on("main", "restarting", lambda _: fleet.journal.on("main", "ready", fleet.request_stop))
    fleet.run(RoleSpec("main", targets.serve, is_main=True), start_role=actors.start)
    assert fleet.journal.find("main", "lost: worker died: restarting")
    assert is_gone(pids[0])


def test_a_role_that_fails_says_why(fleet, actors):
    never = RestartPolicy(restart=False)
    spec = RoleSpec("main", targets.fail, ("broken",), is_main=True, policy=never)
    with pytest.raises(RunFailed, match=r"(?s)broken.*traceback in main"):
        fleet.run(spec, start_role=actors.start)


def test_a_secret_is_a_file_that_only_the_role_has(fleet, actors, tmp_path):
    def start(spec, launch, log_file, wake):
        secret = Launch(launch.order, launch.payload, launch.token, launch.environ, {"A_VARIABLE": b"the key"})
        return actors.start(spec, secret, log_file, wake)

    fleet.journal.on("main", "ready", fleet.request_stop)
    fleet.run(RoleSpec("main", show_secret, is_main=True), start_role=start)
    assert fleet.journal.find("main", "mode=600 content=the key")


def show_secret() -> None:
    import logging
    from pathlib import Path

    from dreamfleet import lifecycle

    path = Path(os.environ["A_VARIABLE"])
    mode = path.stat().st_mode & 0o777
    logging.getLogger("dreamfleet").info("mode=%o content=%s", mode, path.read_text())
    logging.getLogger("dreamfleet").info("ready")
    lifecycle.set_state("running")
    lifecycle.wait_stop()


def test_directories_of_the_driver_become_those_of_the_node(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    order = {"cwd": "/not/here", "path": ["/not/here", "/not/here/src", "/opt/lib"]}
    settled = settle(Launch(order, b"", "", {})).order
    assert settled["cwd"] == str(tmp_path)
    assert settled["path"][:3] == [str(tmp_path), f"{tmp_path}/src", "/opt/lib"]
    order = {"cwd": str(tmp_path.parent), "path": []}
    assert settle(Launch(order, b"", "", {})).order["cwd"] == str(tmp_path.parent)
