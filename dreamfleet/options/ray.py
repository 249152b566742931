"""The section `ray`: what the roles of a run take of a Ray cluster (`run.launcher ray`)."""

from dataclasses import dataclass

from dreamfleet.options.fields import option


@dataclass(frozen=True)
class RayOptions:
    """The cluster, and what is placed where."""

    address: str = option(
        "",
        "Ray cluster to join, as auto or host:port; empty takes RAY_ADDRESS, else starts a cluster on this machine",
        can_change=True,
    )
    agent_cpus: float = option(1.0, "CPUs of agent, replay and logger, on one node", at_least=0, can_change=True)
    agent_gpus: float = option(0.0, "GPUs of the agent", at_least=0, can_change=True)
    agent_labels: str = option("", "labels of the agent's node, as KEY=VALUE,KEY=VALUE", can_change=True)
    worker_cpus: float = option(1.0, "CPUs of each environment worker", at_least=0, can_change=True)
    worker_gpus: float = option(0.0, "GPUs of each environment worker, such as 0.1", at_least=0, can_change=True)
    worker_labels: str = option("", "labels of nodes for environments, as KEY=VALUE,KEY=VALUE", can_change=True)
    shared_logdir: bool = option(
        False, "all nodes see logdir: the agent may run on any, and resumes elsewhere if it is lost", can_change=True
    )
    wait: float = option(
        0.0, "seconds to wait for nodes that the run needs, in a cluster that grows", at_least=0, can_change=True
    )
    working_dir: str = option(
        "", "directory to copy to all nodes, with modules of yours; empty if nodes see the same files", can_change=True
    )
    environ: tuple[str, ...] = option(
        ("DREAMFLEET_*", "JAX_*", "XLA_*", "MUJOCO_*"),
        "environment variables of the command that roles get, as names or patterns",
        can_change=True,
    )


def parse_labels(text: str) -> dict[str, str]:
    """Labels by key."""
    pairs = (label.partition("=") for label in text.split(",") if label)
    return {key: value for key, _, value in pairs}
