"""The section `run`: how a run is carried out, and the processes that it is made of."""

from dataclasses import dataclass
from typing import Literal

from dreamfleet.options.fields import option, section

SERVERS = ("actor", "replay", "logger")  # the roles that others connect to


@dataclass(frozen=True)
class UsageOptions:
    """Which resource figures each role logs."""

    psutil: bool = option(True, "log memory and CPU use", can_change=True)
    nvsmi: bool = option(False, "log GPU use as nvidia-smi reports it", can_change=True)
    gputil: bool = option(False, "log GPU use through the GPUtil package", can_change=True)
    malloc: bool = option(False, "log the largest Python allocations (slow)", can_change=True)
    gc: bool = option(False, "log garbage collection", can_change=True)


@dataclass(frozen=True)
class RunOptions:
    """The run and its roles."""

    mode: Literal["parallel", "serial"] = option(
        "parallel", "parallel (one process per role) or serial (one process, deterministic)"
    )
    launcher: Literal["local", "ray"] = option(
        "local", "where the processes run: local (this machine) or ray (a Ray cluster)", can_change=True
    )
    steps: int = option(
        0, "total environment steps; 0 trains until stopped", at_least=0, can_change=True, short="steps"
    )
    duration: float = option(
        0.0, "wall-clock limit in seconds; 0 trains until stopped", at_least=0, can_change=True, short="duration"
    )
    updates: int = option(
        0, "total gradient updates; 0 trains until stopped", at_least=0, can_change=True, short="updates"
    )
    train_ratio: float = option(
        32.0, "train ratio: trained steps per environment step; 0 removes the limit, as does run.envs 0"
    )
    envs: int = option(
        16, "training environments; 0 trains from imported episodes", at_least=0, can_change=True, short="envs"
    )
    eval_envs: int = option(4, "evaluation environments", at_least=0, can_change=True, short="eval_envs")
    eval_policy: Literal["eval", "train"] = option(
        "eval",
        "mode of the policy in evaluation environments; agents for danijar/dreamerv3 expect train",
        can_change=True,
    )
    envs_per_worker: int = option(1, "environments per worker process", at_least=1, can_change=True)
    agent_process: bool = option(
        True, "run the agent in a process of its own (which can be restarted) instead of a thread", can_change=True
    )
    remote_envs: bool = option(False, "environments join from other machines (dreamfleet role envs)", can_change=True)
    remote_replay: bool = option(
        False, "the replay buffer joins from another machine (dreamfleet role replay)", can_change=True
    )
    remote_logger: bool = option(
        False, "the logger joins from another machine (dreamfleet role logger)", can_change=True
    )
    replicas: int = option(
        1, "learners that train one agent together, each with environments and a replay buffer of its own",
        at_least=1, at_most=1024, can_change=True,
    )  # fmt: skip
    replica: int = option(
        0, "number of this learner among the replicas; 0 reports and saves", at_least=0, can_change=True
    )
    gang: str = option(
        "", "host:port where replica 0 listens for the other replicas; on Ray it is found", can_change=True
    )
    transport: Literal["auto", "zmq", "portal"] = option(
        "auto",
        "transport between roles: auto (unix sockets on one machine, ZeroMQ with CURVE over TCP), zmq or portal",
        can_change=True,
    )
    actor_addr: str = option(
        "ipc:{auto}", "address of the policy server: ipc:{auto}, localhost:{auto} or host:port", can_change=True
    )
    replay_addr: str = option("ipc:{auto}", "address of the replay server", can_change=True)
    logger_addr: str = option("ipc:{auto}", "address of the logger", can_change=True)
    key_file: str = option(
        "", "key file of the run for TCP; empty takes DREAMFLEET_KEY_FILE, else run.key in logdir", can_change=True
    )
    portal_plain_handshake: bool = option(
        False,
        "let portal programs without the run's key join from other machines (unencrypted, open to everybody who can "
        "reach a port); set it on all roles of the run",
        can_change=True,
    )
    join_timeout: float = option(
        3600.0,
        "seconds an environment tries to reach a policy server that is away before it gives up; 0 tries on",
        at_least=0,
        can_change=True,
    )
    allow_lost_steps: bool = option(
        False, "go on with a replay buffer that has lost steps which the run had stored", can_change=True
    )
    actor_batch: int = option(0, "inference batch size; 0 takes half of the environments", can_change=True)
    actor_wait_ms: float = option(
        5.0, "milliseconds an observation waits at most for its inference batch to fill", at_least=0, can_change=True
    )
    actor_threads: int = option(1, "inference batches in flight", at_least=1, can_change=True)
    backlog: int = option(
        64, "unacknowledged transition batches before the policy server pauses acting", at_least=1, can_change=True
    )
    act_timeout: float = option(
        600.0, "seconds an environment waits for an action before it starts a new episode", above=0, can_change=True
    )
    env_timeout: float = option(
        300.0,
        "seconds a step or reset may take before the worker is restarted; 0 disables",
        at_least=0,
        can_change=True,
    )
    episode_timeout: float = option(
        180.0, "seconds without a request after which an environment's recurrent state is dropped",
        above=0, can_change=True,
    )  # fmt: skip
    prefetch: int = option(2, "training batches requested ahead", at_least=1, can_change=True)
    log_every: float = option(10.0, "seconds between metrics", above=0, can_change=True)
    report_every: float = option(300.0, "seconds between reports; 0 disables", at_least=0, can_change=True)
    report_batches: int = option(1, "batches per report", at_least=1, can_change=True)
    save_every: float = option(
        900.0, "seconds between checkpoints; 0 saves only at the end", at_least=0, can_change=True
    )
    save_every_steps: int = option(
        0, "environment steps between checkpoints, beside save_every; 0 saves by time only", at_least=0, can_change=True
    )
    stop_grace: float = option(
        120.0, "seconds for the last update and checkpoint after a stop, before the agent is killed",
        above=0, can_change=True,
    )  # fmt: skip
    leg: int = option(
        0, "serial mode: checkpoint and restart every this many steps, so that resuming is exact; 0 never",
        at_least=0, can_change=True,
    )  # fmt: skip
    keep: int = option(3, "newest checkpoints to keep, beside the one of the best score", at_least=1, can_change=True)
    from_checkpoint: str = option("", "checkpoint or log directory to initialise the agent from")
    from_checkpoint_regex: str = option(".*", "load only the parameters whose name matches")
    restart: bool = option(True, "restart roles that die", can_change=True)
    max_restarts: int = option(
        5,
        "deaths of a role without progress in between (an episode, an update, stored steps, a minute of "
        "running) before the run gives up; 0 allows none",
        at_least=0,
        can_change=True,
    )
    heartbeat_timeout: float = option(
        60.0, "seconds without a heartbeat before a role is restarted", above=0, can_change=True
    )
    log_full: bool = option(False, "log images of all environments, not only of the first", can_change=True)
    usage: UsageOptions = section(UsageOptions)

    @property
    def is_offline(self) -> bool:
        """Whether there are no environments that add steps: training is from those that are there."""
        return not self.envs and not self.remote_envs

    def address(self, role: str) -> str:
        """Where a role listens."""
        return {"actor": self.actor_addr, "replay": self.replay_addr, "logger": self.logger_addr}[role]
