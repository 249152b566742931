"""Whether the bundles of a run fit the nodes of a cluster, found out before anything is started."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dreamfleet.errors import ConfigError

NODE_LABEL = "ray.io/node-id"
RESOURCES = {"cpus": "CPU", "gpus": "GPU"}  # by the end of the option, what Ray calls them

Node = Mapping[str, Any]  # as `ray.nodes` describes it


@dataclass(frozen=True)
class Bundle:
    """What is placed on one node together: `agent`, with replay and logger, a `worker`, or a `replica` of all."""

    name: str
    needs: dict[str, float]  # by resource
    labels: dict[str, str] = field(default_factory=dict)
    count: int = 1

    def room(self, node: Node, taken: Mapping[str, float] | None = None) -> float:
        """How many of them a node can hold beside what is taken there."""
        if not is_labelled(node, self.labels):
            return 0
        left = {kind: node["Resources"].get(kind, 0.0) - (taken or {}).get(kind, 0.0) for kind in self.needs}
        return min((left[kind] // need for kind, need in self.needs.items() if need), default=math.inf)


class Bundles(NamedTuple):
    """Everything that a run places."""

    agent: Bundle
    workers: Bundle
    replicas: Bundle  # whole fleets, each on one node


def check_fit(bundles: Bundles, nodes: Sequence[Node]) -> None:
    """Raises ConfigError for the first bundle that the nodes, with nothing else on them, have no room for."""
    agent, workers, replicas = bundles
    _check_one(agent, nodes)
    if workers.count:
        _check_workers(agent, workers, nodes)
    if replicas.count and (room := sum(replicas.room(node) for node in nodes)) < replicas.count:
        needs = _describe_needs(replicas.needs)
        reason = f"needs a node with {needs} for each replica beside the first, and there is room for {room:.0f}"
        remedy = "lower it, or run.envs or ray.agent_cpus, or add nodes (ray.wait waits for them)"
        raise ConfigError("run.replicas", replicas.count + 1, f"{reason}; nodes: {_describe(nodes)}", remedy)


def _check_workers(agent: Bundle, workers: Bundle, nodes: Sequence[Node]) -> None:
    _check_one(workers, nodes)

    def count_room(home: Node) -> float:
        """Room for workers, with the agent on one of the nodes."""
        return sum(workers.room(node, agent.needs if node is home else None) for node in nodes)

    room = max(count_room(node) for node in nodes if agent.room(node) >= 1)
    if room < workers.count:
        reason = f"leaves room for {max(0, room):.0f} of {workers.count} environment workers beside the agent"
        remedy = "lower it, raise run.envs_per_worker, lower run.envs, or add nodes (ray.wait waits for them)"
        raise ConfigError("ray.worker_cpus", workers.needs["CPU"], f"{reason}; nodes: {_describe(nodes)}", remedy)


def _check_one(bundle: Bundle, nodes: Sequence[Node]) -> None:
    candidates = [node for node in nodes if is_labelled(node, bundle.labels)]
    wanted = {key: value for key, value in bundle.labels.items() if key != NODE_LABEL}
    if not candidates:
        text = ",".join(f"{key}={value}" for key, value in wanted.items())
        where = "the node of this command does not have" if NODE_LABEL in bundle.labels else "no node has"
        raise ConfigError(f"ray.{bundle.name}_labels", text, f"{where} these labels", "correct them")
    if any(bundle.room(node) >= 1 for node in candidates):
        return
    lacking = [end for end, kind in RESOURCES.items() if not any(_has(node, bundle, kind) for node in candidates)]
    end = lacking[-1] if lacking else "cpus"
    kind = RESOURCES[end]
    if NODE_LABEL in bundle.labels:
        where = "the node of this command, where logdir is, does not have"
        remedy = f"lower it, run the command on a node with {kind}s, or set ray.shared_logdir if all nodes see logdir"
    else:
        where, remedy = "no node has", "lower it, or add such a node (ray.wait waits for it)"
    largest = max(candidates, key=lambda node: (node["Resources"].get(kind, 0.0), node["Resources"].get("CPU", 0.0)))
    reason = f"does not fit: {where} {_describe_needs(bundle.needs)}; largest node: {_describe([largest])}"
    raise ConfigError(f"ray.{bundle.name}_{end}", bundle.needs[kind], reason, remedy)


def _has(node: Node, bundle: Bundle, kind: str) -> bool:
    return node["Resources"].get(kind, 0.0) >= bundle.needs[kind]


def is_labelled(node: Node, labels: Mapping[str, str]) -> bool:
    """Whether a node has the labels; of conditions on them, such as `!value`, Ray knows more."""
    plain = {key: value for key, value in labels.items() if not value.startswith(("!", "in("))}
    return all(node["Labels"].get(key) == value for key, value in plain.items())


def _describe_needs(needs: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {need:g}" for kind, need in needs.items() if need)


def _describe(nodes: Sequence[Node]) -> str:
    def describe(node: Node) -> str:
        has = (f"{kind} {node['Resources'].get(kind, 0.0):g}" for kind in RESOURCES.values())
        return f"{node['NodeManagerAddress']} ({', '.join(has)})"

    return ", ".join(map(describe, nodes[:5])) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
