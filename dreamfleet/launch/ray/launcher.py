"""Runs a fleet on a Ray cluster: joins or starts it, finds a place for the roles, and leaves nothing there.

Agent, replay and logger share the bundle of a placement group, which stays theirs when they are restarted. Environment
workers are actors of their own, spread over the nodes: those of a lost node come back one by one, where there is room.
"""

import contextlib
import dataclasses
import fnmatch
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from dreamfleet import rpc
from dreamfleet.base.addresses import AUTO, Address, join_host
from dreamfleet.base.logdir import KEY_VARIABLE
from dreamfleet.errors import ConfigError, RunFailed
from dreamfleet.launch.invitation import ANY
from dreamfleet.launch.outcome import Outcome
from dreamfleet.launch.ray.fit import NODE_LABEL, Bundle, Bundles, check_fit
from dreamfleet.launch.ray.relay import Relay
from dreamfleet.launch.ray.role import RayRole
from dreamfleet.launch.supervise.process import Launch, StartRole
from dreamfleet.launch.topology import RoleSpec
from dreamfleet.options import SERVERS, RoleOptions, key_file
from dreamfleet.options.ray import parse_labels

POLL_S = 1.0
FREE_S = 30.0  # for a bundle that fits to become free
THREADS = 4  # of a relay: one waits for messages, the others carry out requests
MOST_TEXT = 500  # characters of an error of Ray

Run = Callable[[RoleOptions, StartRole], Outcome]


def run_on_ray(run: Run, options: RoleOptions) -> Outcome:
    """Calls `run` with the addresses of the roles in the cluster, and with what starts them there.

    A run whose log directory is shared goes on elsewhere when the node of its agent is lost.
    """
    bundles = make_bundles(options)
    with joined_cluster(options, sum(bundle.count * bundle.needs["CPU"] for bundle in bundles)) as is_own:
        while True:
            with placed(bundles, options) as node:
                try:
                    return run(node.resolve(options, is_own), node.start)
                except RunFailed as error:
                    if not options.ray.shared_logdir or node.is_alive():
                        raise
                    print(f"{error}\nresuming on another node", flush=True)


def make_bundles(options: RoleOptions) -> Bundles:
    """What the agent with replay and logger takes of a node, each of the environment workers, and other replicas."""
    given, size = options.ray, options.envs_per_worker
    count = 0 if options.remote_envs else math.ceil(options.envs / size) + math.ceil(options.eval_envs / size)
    agent = Bundle("agent", {"CPU": given.agent_cpus, "GPU": given.agent_gpus}, parse_labels(given.agent_labels))
    worker = {"CPU": given.worker_cpus, "GPU": given.worker_gpus}
    fleet = {kind: need + count * worker[kind] for kind, need in agent.needs.items()}
    return Bundles(
        agent,
        Bundle("worker", worker, parse_labels(given.worker_labels), count),
        Bundle("replica", fleet, agent.labels, options.replicas - 1),
    )


@contextlib.contextmanager
def joined_cluster(options: RoleOptions, cpus: float) -> Iterator[bool]:
    """Joins the cluster that is named, or starts one on this machine; says whether it is its own."""
    if ray.is_initialized():  # by the user's script
        yield False
        return
    given = options.ray.address or os.environ.get("RAY_ADDRESS", "")
    how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if options.ray.working_dir:
        how["runtime_env"] = {"working_dir": str(Path(options.ray.working_dir).expanduser())}
    if not given:
        # Nobody else has to reach it. Its CPUs are but a number: on one machine, roles may be more than cores.
        how |= {"num_cpus": max(os.cpu_count() or 1, math.ceil(cpus)), "_node_ip_address": "127.0.0.1"}
        how |= {"include_dashboard": False}
        os.environ.setdefault("RAY_worker_niceness", "0")  # roles have the priority that they have without Ray
    try:
        if ":" in given and (obstacle := rpc.find_obstacle(given)):  # Ray would try on for minutes
            raise ConnectionError(obstacle)
        ray.init(given or "local", **how)
    except Exception as error:  # Ray has no class of its own for this
        remedy = "start Ray on this machine (`ray start --head`, or `ray start --address HOST:PORT` to join others)"
        reason = f"cannot be {'joined' if given else 'started'} ({_shorten(error)})"
        raise ConfigError("ray.address", given, reason, remedy) from error
    try:
        yield not given
    finally:
        ray.shutdown()


@contextlib.contextmanager
def placed(bundles: Bundles, options: RoleOptions) -> Iterator["Placement"]:
    """Reserves the place of the agent; raises ConfigError with the bundle that does not fit."""
    here, given = ray.get_runtime_context().get_node_id(), options.ray
    agent = bundles.agent
    if not given.shared_logdir:
        agent = dataclasses.replace(agent, labels={**agent.labels, NODE_LABEL: here})
        bundles = bundles._replace(agent=agent)
    needs = {kind: need for kind, need in agent.needs.items() if need} or {"CPU": 0.001}  # a bundle is never empty
    # Made before there is room for it, so that a cluster that grows on demand knows what to grow by.
    group = placement_group([needs], bundle_label_selector=[agent.labels])
    try:
        _wait_fit(bundles, time.monotonic() + given.wait)
        if not group.wait(FREE_S):
            reason = f"does not fit: others have taken what it needs, for {FREE_S:g} s"
            raise ConfigError("ray.agent_cpus", agent.needs["CPU"], reason, "lower it, or wait until they are done")
        node_id = placement_group_table(group)["bundles_to_node_id"][0]
        yield Placement(bundles, group, node_id, here, options)
    finally:
        with contextlib.suppress(Exception):  # Ray is gone
            remove_placement_group(group)


def _wait_fit(bundles: Bundles, deadline: float) -> None:
    while True:
        try:
            return check_fit(bundles, [node for node in ray.nodes() if node["Alive"]])
        except ConfigError:
            if time.monotonic() > deadline:
                raise
        threading.Event().wait(POLL_S)


class Placement:
    """Where the roles are: agent, replay and logger on one node, environment workers wherever Ray puts them."""

    def __init__(self, bundles: Bundles, group: Any, node_id: str, here: str, options: RoleOptions):
        self._bundles, self._group = bundles, group
        self._node_id, self._is_here = node_id, node_id == here
        self._ip = next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == node_id)
        self._key_file = Path(key_file(options))
        patterns = options.ray.environ
        self._environ = {k: v for k, v in os.environ.items() if any(fnmatch.fnmatchcase(k, p) for p in patterns)}
        self._relay = ray.remote(Relay)

    def is_alive(self) -> bool:
        """Whether the agent's node is there."""
        with contextlib.suppress(Exception):  # Ray is gone
            return any(node["Alive"] for node in ray.nodes() if node["NodeID"] == self._node_id)
        return False

    def resolve(self, options: RoleOptions, is_own: bool) -> RoleOptions:
        """The options with addresses that all nodes reach; on one machine they stay as they are."""
        found = {}
        for role in () if is_own else SERVERS:
            address = Address.parse(options.address(role))
            is_private = role == "replay" and self._is_here and address.is_ipc  # the agent alone talks to it
            if not is_private and (address.is_ipc or address.host in ANY):
                found[f"{role}_addr"] = join_host(self._ip, address.port or AUTO)
        if options.replicas > 1 and not options.gang:
            gang = join_host(self._ip, AUTO)
            found["gang"] = rpc.resolve_addr(gang, "zmq") if self._is_here else gang
        if not self._is_here:  # where nobody knows which ports are free but that node
            find = ray.remote(rpc.resolve_addr).options(**self._at_agent())
            found = {key: ray.get(find.remote(text, "zmq")) for key, text in found.items()}
        return dataclasses.replace(options, **found)

    def start(self, spec: RoleSpec, launch: Launch, log_file: Path, wake: Callable[[], None]) -> RayRole:
        """Starts a role in the cluster, now or when there is room."""
        if spec.is_spread:
            bundle = self._bundles.replicas if spec.is_fleet else self._bundles.workers
            needs, labels = bundle.needs, bundle.labels
            how = {"scheduling_strategy": "SPREAD", "num_cpus": needs["CPU"], "num_gpus": needs["GPU"]}
            how |= {"label_selector": labels} if labels else {}
        else:
            how = self._at_agent()
            needs = self._bundles.agent.needs if spec.is_main else {"CPU": 0, "GPU": 0}
            how |= {"num_cpus": needs["CPU"], "num_gpus": needs["GPU"]}
        secrets = {KEY_VARIABLE: self._key_file.read_bytes()} if self._key_file.is_file() else {}
        launch = dataclasses.replace(launch, environ={**self._environ, **launch.environ}, secrets=secrets)
        actor = self._relay.options(max_restarts=0, max_concurrency=THREADS, **how).remote(launch)
        return RayRole(actor, log_file, wake, lambda error: self._explain(error, spec))

    def _at_agent(self) -> dict[str, Any]:
        return {"scheduling_strategy": PlacementGroupSchedulingStrategy(self._group, 0), "num_cpus": 0}

    def _explain(self, error: Exception, spec: RoleSpec) -> dict:
        """The failure of a role whose Ray worker has died: the run cannot go on without the agent's node."""
        is_lost = not spec.is_spread and not self.is_alive()
        summary = f"its node was lost: {self._ip}" if is_lost else f"its Ray worker was lost: {_shorten(error)}"
        nothing = {"frames": "", "traceback": "", "is_refusal": False, "state": "dead"}
        return {"kind": "failure", "summary": summary, "is_fatal": is_lost, "at": time.monotonic(), **nothing}


def _shorten(error: Exception) -> str:
    return " ".join(str(error).split())[:MOST_TEXT]
