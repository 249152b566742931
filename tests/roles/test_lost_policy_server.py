"""A policy server that dies between two calls of an environment takes rows with it: the episode must not go on."""

import functools
import itertools
import threading
from pathlib import Path

import psutil
import pytest

from dreamfleet.replay.archive import Archive
from dreamfleet.testing import CountingAgent, CountingEnv
from tests.fleet import eventually, make_args, running_fleet

pytestmark = pytest.mark.distributed

EPISODE = 8  # in which it happens
STOP, KILL = 3, 4  # steps at which the replay is stopped, and the agent killed


class PausingEnv(CountingEnv):
    """Waits inside two steps of one episode until the test lets it go on."""

    def __init__(self, index: int, directory: Path):
        super().__init__(index)
        self._directory = directory

    def step(self, action: dict) -> dict:
        obs, pause = super().step(action), threading.Event()
        if self._episode == EPISODE and self._step in (STOP, KILL):
            (self._directory / f"at{self._step}").touch()
            while not (self._directory / f"go{self._step}").exists():
                pause.wait(0.01)
        return obs


@pytest.mark.parametrize("transport", ["auto", "zmq"])  # portal is slow: see tests/rpc
def test_an_environment_starts_a_new_episode_after_the_policy_server_was_replaced(transport, tmp_path):
    place = "ipc:{auto}" if transport == "auto" else "localhost:{auto}"
    addresses = {f"{role}_addr": place for role in ("actor", "replay", "logger")}
    args = make_args(tmp_path, transport=transport, envs=1, eval_envs=0, steps=300, env_timeout=0.0, **addresses)
    make_env = functools.partial(PausingEnv, directory=tmp_path)
    with running_fleet(args, CountingAgent, make_env) as fleet:
        eventually((tmp_path / f"at{STOP}").exists, "a step")
        psutil.Process(fleet.status()["roles"]["replay"]["pid"]).suspend()  # the next row is not acknowledged
        (tmp_path / f"go{STOP}").touch()
        eventually((tmp_path / f"at{KILL}").exists, "the step after it")
        fleet.kill("agent")
        psutil.Process(fleet.status()["roles"]["replay"]["pid"]).kill()  # with the row that it has not read
        eventually(lambda: read_log(tmp_path, "agent").count("policy server ready") > 1, "the next policy server")
        (tmp_path / f"go{KILL}").touch()
    assert "AssertionError" not in read_log(tmp_path, "agent"), "the new policy server was asked in mid-episode"
    rows = read_rows(tmp_path)
    assert (EPISODE, STOP) not in rows, "the row was not lost: nothing was tried"
    for (episode, step), (next_episode, next_step) in itertools.pairwise(rows):
        assert next_step == 0 or (next_episode, next_step) == (episode, step + 1), "a row is missing inside an episode"


def read_log(logdir: Path, role: str) -> str:
    return (logdir / "logs" / f"{role}.log").read_text()


def read_rows(logdir: Path) -> list[tuple[int, int]]:
    """Episode and step of every row of the only environment."""
    archive = Archive(logdir)
    ((segments, rows),) = archive.trajectories()
    return list(zip(*(archive.column(key, segments, rows).tolist() for key in ("episode", "step")), strict=True))
