"""Workers that join, leave and come back without a number of their own: nobody's environment is stepped twice."""

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import pytest

from dreamfleet.replay.archive import Archive
from dreamfleet.rpc.keys import make_key
from tests.fleet import DEADLINE_S, eventually, free_port, make_args, running_fleet
from tests.roles.test_elsewhere import SCRIPT_START

pytestmark = pytest.mark.distributed

SCRIPT = SCRIPT_START + textwrap.dedent("""
    import functools
    from tests.fleet import GatedEnv
    from tests.roles.test_elastic import EPISODES

    gate = json.loads(sys.argv[1])["key_file"] + ".gate"
    make_env = functools.partial(GatedEnv, gate=gate, episodes=EPISODES)
    parallel.parallel_envs(make_env, make_env, args)
""")
EPISODES = 20


class Workers:
    """Processes of environments, as on other machines."""

    def __init__(self, options: dict):
        self.options = options
        self._processes: list[subprocess.Popen] = []

    def start(self, logdir: Path, envs: int, **options) -> subprocess.Popen:
        words = json.dumps({**self.options, "logdir": str(logdir), "envs": envs, "eval_envs": 0, **options})
        self._processes.append(process := subprocess.Popen([sys.executable, "-c", SCRIPT, words]))
        return process

    def wait(self) -> list[int]:
        return [process.wait(DEADLINE_S) for process in self._processes]

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def workers(tmp_path):
    make_key(tmp_path / "run.key")
    found = Workers({"actor_addr": f"localhost:{free_port()}", "key_file": str(tmp_path / "run.key")})
    yield found
    found.kill()


def read_rows(logdir: Path) -> dict[int, list[tuple[int, int, int]]]:
    """Life, episode and step of all rows of the run, by environment."""
    archive, rows = Archive(logdir), defaultdict(list)
    for segments, places in archive.trajectories():
        columns = (archive.column(key, segments, places).tolist() for key in ("env", "life", "episode", "step"))
        for env, *row in zip(*columns, strict=True):
            rows[env].append(tuple(row))
    return rows


def count_lives(logdir: Path) -> int:
    leases = logdir / "leases.json"
    return json.loads(leases.read_text())["lives"] if leases.exists() else 0


def test_workers_join_late_leave_and_come_back(tmp_path, workers):
    run, shared = tmp_path / "run", tmp_path / "shared"
    args = make_args(run, **workers.options, remote_envs=True, envs=2, eval_envs=0, steps=4000)
    with running_fleet(args) as fleet:
        first = workers.start(tmp_path / "first", 2)
        fleet.wait_step(100)
        workers.start(shared, 2)
        workers.start(shared, 3, envs_per_worker=3)  # as of two machines that share a file system
        eventually(lambda: count_lives(run) == 5, "all of them have numbers")
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        workers.start(tmp_path / "first", 2)
        eventually(lambda: count_lives(run) == 7, "those that came back have numbers")
        fleet.kill("agent")
        Path(f"{tmp_path}/run.key.gate").touch()
        fleet.join()
        assert workers.wait() == [-signal.SIGKILL, 0, 0, 0], "they hear that the run is over"
    rows = read_rows(run)
    assert rows.keys() == set(range(7)), "also those that came back have the numbers that they had"
    for env, seen in rows.items():
        assert len(set(seen)) == len(seen), f"a step of environment {env} is there twice"
        lives = [life for life, *_ in seen]
        assert len(set(lives)) == len(list(itertools.groupby(lives))), f"two processes step environment {env}"
    lives = {env: {life for life, *_ in seen} for env, seen in rows.items()}
    assert sum(map(len, lives.values())) == len(set.union(*lives.values())), "no two draw the same numbers"
    assert min(len(lives[0]), len(lives[1])) > 1, "a worker that comes back goes on"
    assert sorted(path.name for path in (shared / "joined").iterdir()) == ["envs", "envs-2"]
