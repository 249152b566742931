"""A user's script, run by the tests: everything is in `__main__`, without a guard, so running it again would show."""

import os
import sys
from pathlib import Path

from dreamfleet.launch.supervise.supervisor import STOP_GRACE_S, Supervisor
from dreamfleet.launch.topology import RoleSpec

logdir, scenario = Path(sys.argv[1]), sys.argv[2]
timeout_s = float(sys.argv[3])
with (logdir / "runs_of_main").open("a") as file:
    file.write(f"{os.getpid()}\n")

GREETING = "hello from main"


class Agent:
    def run(self) -> None:
        import targets

        targets.log.info(GREETING)
        if scenario != "complete":
            targets.serve()


def make_agent() -> None:
    Agent().run()


def ignore_stop() -> None:
    import targets

    targets.start_descendants("hang")


specs = [RoleSpec("main", make_agent, is_main=True)]
if scenario == "tree":
    specs += [RoleSpec("stubborn", ignore_stop), RoleSpec("polite", "targets:serve")]
elif scenario == "stop":
    specs += [RoleSpec("other", "targets:serve")]
elif scenario == "stubborn":
    specs = [RoleSpec("main", ignore_stop, is_main=True)]
elif scenario == "frozen":
    specs = [RoleSpec("main", "targets:hold_gil", is_main=True)]
elif scenario == "pause":
    gate = (str(logdir / "gate"), timeout_s)
    specs = [RoleSpec("main", "targets:work_at", gate, is_main=True), RoleSpec("other", "targets:serve")]


def show(*line: str) -> None:
    print(*line, sep="|", flush=True)


grace_s = timeout_s if scenario == "pause" else STOP_GRACE_S
supervisor = Supervisor(specs, logdir, heartbeat_timeout_s=timeout_s, stop_grace_s=grace_s, on_log=show)
with supervisor.install_signals():
    supervisor.run()
print(f"returned|{supervisor.stop_reason}", flush=True)
