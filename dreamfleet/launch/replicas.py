"""Replicas that a launcher places: each is a fleet of its own, and a role of the fleet of replica 0."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import cloudpickle

from dreamfleet import lifecycle, rpc
from dreamfleet.base import pickles
from dreamfleet.base.logdir import KEY_FILE, KEY_VARIABLE
from dreamfleet.launch.background import BackgroundRun
from dreamfleet.launch.supervise.status import read_status
from dreamfleet.launch.topology import RestartPolicy, RoleSpec
from dreamfleet.options import SERVERS, Options, change_options, place_replica

AUTO_IPC = "ipc:{auto}"
LOOK_S = 1.0  # between looks at the fleet of the replica
STOP_MARGIN_S = 60.0  # for a stop, beyond what its agent gets


def replica_specs(options: Options, gang: str, task: Callable | None, agent: Callable | None) -> list[RoleSpec]:
    """The replicas of a run beside the first, which meet at the address `gang`."""
    run = options.run
    policy = RestartPolicy(max_restarts=run.max_restarts)
    stop_s = run.stop_grace + STOP_MARGIN_S
    specs = []
    for number in range(1, run.replicas):
        own = {"run.replica": number, "run.gang": gang, "run.launcher": "local"}
        # What the first replica has elsewhere, and listens on for that, is its own.
        own |= {"run.remote_replay": False, "run.remote_logger": False}
        own |= {f"run.{role}_addr": AUTO_IPC for role in SERVERS}
        if options.replay.directory:  # two replicas may be on one node
            own["replay.directory"] = str(Path(options.replay.directory) / f"replica-{number}")
        call = (place_replica(change_options(options, own)), pickles.dumps((task, agent)))
        how = {"policy": policy, "seed": options.seed, "stop_grace_s": stop_s}
        specs.append(RoleSpec(f"replica{number}", keep_replica, call, is_spread=True, is_fleet=True, **how))
    return specs


def keep_replica(options: Options, made: bytes) -> None:
    """The role: runs the fleet of a replica with a launcher of its own, until the whole run is stopped."""
    from dreamfleet.launch.run import run_options

    directory = Path(options.logdir)
    (directory / "status.json").unlink(missing_ok=True)  # that of an earlier life says nothing of this one
    if key := os.environ.pop(KEY_VARIABLE, ""):  # a file that no other process can read
        options = change_options(options, {"run.key_file": str(directory / KEY_FILE)})
        rpc.store_key(options.run.key_file, Path(key).read_text())
    stop_s = options.run.stop_grace + STOP_MARGIN_S
    log_file, call = directory / "logs" / "launcher.log", (run_options, options, *cloudpickle.loads(made))
    # Whoever stops in order stops all replicas; one that is lost is waited for.
    run = BackgroundRun(log_file, stop_s, *call, stops_in_order=False)
    with lifecycle.on_stop(run.request_stop):
        while not run.wait(LOOK_S):
            lifecycle.beat()
            with contextlib.suppress(OSError):  # there is none yet
                if read_status(directory)["state"] == "running":
                    lifecycle.set_state("running")
    if run.error:
        raise run.error
    while not lifecycle.wait_stop(LOOK_S):  # the run is over, and replica 0 says so when it has saved
        lifecycle.beat()
