"""Two fleets that train one agent together, started with the command, for tests on real processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.fleet import DEADLINE_S, eventually, free_port, kill_below

LIGHT = Path(__file__).parent / "roles" / "gang"  # where `meeting.py` is


class Gang:
    """Two fleets with one log directory."""

    def __init__(self, logdir: Path, **options):
        self.logdir = logdir
        self.options = {
            "preset": "debug",
            "task": "dummy_vector",
            "run.replicas": 2,
            "run.gang": f"127.0.0.1:{free_port()}",
            "logdir": logdir,
            **options,
        }
        self.directories = [logdir, logdir / "replica-1"]
        self.processes = [self.start(replica) for replica in range(2)]

    def start(self, replica: int, **options) -> subprocess.Popen:
        given = {**self.options, "run.replica": replica, **options}
        words = [str(word) for key, value in given.items() for word in (f"--{key}", value)]
        output = (self.logdir.parent / f"output-{replica}.txt").open("a+")
        command = [sys.executable, "-m", "dreamfleet", "train", *words]
        paths = [str(LIGHT), os.environ.get("PYTHONPATH", "")]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environ)

    def output(self, replica: int) -> str:
        return (self.logdir.parent / f"output-{replica}.txt").read_text()

    def roles(self, replica: int) -> dict:
        try:
            return json.loads((self.directories[replica] / "status.json").read_text())["roles"]
        except (OSError, ValueError):
            return {}

    def updates(self, replica: int) -> int:
        return int(self.roles(replica).get("agent", {}).get("figures", {}).get("new_updates", 0))

    def wait(self, condition, what: str):
        def look():
            over = [replica for replica, process in enumerate(self.processes) if process.poll() is not None]
            assert not over, "\n".join(map(self.output, over))
            return condition()

        return eventually(look, what)

    def finish(self) -> list[int]:
        """Waits for the end of both commands; returns their exit codes."""
        return [process.wait(DEADLINE_S) for process in self.processes]

    def read_updates(self) -> list[int]:
        """The updates of both at their end."""
        return [json.loads((path / "progress.json").read_text())["updates"] for path in self.directories]

    def kill_agent(self, replica: int) -> None:
        os.kill(self.roles(replica)["agent"]["pid"], signal.SIGKILL)

    def close(self) -> None:
        for process in self.processes:
            kill_below(process)
