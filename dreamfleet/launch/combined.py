"""A whole fleet on this machine: addresses, topology, and the supervisor that runs it."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import elements

from dreamfleet import lifecycle, rpc
from dreamfleet.launch.lock import lock_logdir
from dreamfleet.launch.supervise.supervisor import Supervisor
from dreamfleet.launch.topology import RestartPolicy, RoleSpec
from dreamfleet.metrics.progress import read_progress
from dreamfleet.metrics.terminal import Terminal
from dreamfleet.options.roles import key_file, sequence_length, with_defaults
from dreamfleet.roles.agent import parallel_agent
from dreamfleet.roles.env import env_worker
from dreamfleet.roles.logger import parallel_logger
from dreamfleet.roles.replay.role import parallel_replay

ADDRESSES = ("actor_addr", "replay_addr", "logger_addr")
LOGGER_GRACE_S = 30.0
ONE_THREAD: dict[str, str] = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# Large message and batch buffers are freed and allocated all the time: keep them mapped, or each costs its page faults.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "2",
}
HUGE_PAGES = "glibc.malloc.hugetlb=1"  # a training step touches hundreds of megabytes; ignored by other C libraries


def combined(
    make_agent: Callable,
    make_replay_train: Callable,
    make_replay_eval: Callable,
    make_env_train: Callable,
    make_env_eval: Callable,
    make_stream: Callable,
    make_logger: Callable,
    args: elements.Config,
) -> None:
    """Runs all roles to the end of the run.

    Returns at `steps` or `duration`, or after an orderly stop, and raises RunFailed with the first cause when a role's
    restart budget is spent.
    """
    args = with_defaults(args)
    sequence_length(args)  # refuses lengths that do not fit before anything starts
    with lock_logdir(args.logdir), resolved_addresses(args) as args:
        specs = fleet_specs(
            make_agent,
            make_replay_train,
            make_replay_eval,
            make_env_train,
            make_env_eval,
            make_stream,
            make_logger,
            args,
        )
        run_fleet(specs, args, Path(args.logdir))


def parallel_envs(make_env_train: Callable, make_env_eval: Callable, args: elements.Config) -> None:
    """Runs all environments of a fleet whose other roles are elsewhere, until it is stopped."""
    args = with_defaults(args)
    join_fleet(env_specs(make_env_train, make_env_eval, args), "envs", args)


def join_fleet(specs: list[RoleSpec], name: str, args: elements.Config) -> None:
    """Runs roles of a fleet whose other roles are elsewhere; their logs and status go below `joined/NAME`."""
    run_fleet(specs, args, Path(args.logdir) / "joined" / name)


def run_fleet(specs: list[RoleSpec], args: elements.Config, directory: Path) -> None:
    """Supervises the roles and shows how they do; raises KeyboardInterrupt after a Ctrl-C."""
    with Terminal(args.steps) as terminal:
        supervisor = Supervisor(
            specs,
            directory,
            heartbeat_timeout_s=args.heartbeat_timeout,
            on_log=lambda role, level, text: terminal.print(f"[{role}] {text}"),
            on_status=lambda status: terminal.update(read_progress(args.logdir), status),
        )
        try:
            with supervisor.install_signals():
                supervisor.run()
        finally:
            lifecycle.reset()  # a role in a thread may have asked this process to stop
    if supervisor.stop_reason == "SIGINT":
        raise KeyboardInterrupt


@contextlib.contextmanager
def resolved_addresses(args: elements.Config) -> Iterator[elements.Config]:
    """The arguments with `{auto}` filled in, and the run's key where roles talk over TCP."""
    addresses = {key: rpc.resolve_addr(args[key], args.transport) for key in ADDRESSES}
    if any(not address.startswith("ipc:") for address in addresses.values()):
        rpc.make_key(key_file(args))
    try:
        # Roles of our own understand more than the documented methods; a remote one may be anyone's.
        yield elements.Config(
            {**dict(args), **addresses, "portal_meta": not (args.remote_replay or args.remote_logger)}
        )
    finally:
        for address in addresses.values():
            rpc.remove_addr(address)


def fleet_specs(
    make_agent: Callable,
    make_replay_train: Callable,
    make_replay_eval: Callable,
    make_env_train: Callable,
    make_env_eval: Callable,
    make_stream: Callable,
    make_logger: Callable,
    args: elements.Config,
) -> list[RoleSpec]:
    """The fleet as data, in the order in which its roles are started."""
    specs = [] if args.remote_logger else [logger_spec(make_logger, args)]
    specs.append(
        _spec(
            args,
            "agent",
            parallel_agent,
            _pickled(make_agent),
            args,
            is_main=True,
            in_thread=not args.agent_process,
            environ=agent_environ(),
        )
    )
    if not args.remote_replay:
        specs.append(replay_spec(make_replay_train, make_replay_eval, make_stream, args))
    if not args.remote_envs:
        specs += env_specs(make_env_train, make_env_eval, args)
    return specs


def agent_environ() -> dict[str, str]:
    """Variables of the agent's process, beside the tunables that the user has set."""
    tunables = [os.environ.get("GLIBC_TUNABLES"), HUGE_PAGES]
    return KEEP_MEMORY | {"GLIBC_TUNABLES": ":".join(filter(None, tunables))}


def logger_spec(make_logger: Callable, args: elements.Config) -> RoleSpec:
    """The logger, which is stopped last so that it hears everyone out, and has time to tell tracking services."""
    options = {"environ": ONE_THREAD, "stop_order": 2, "stop_grace_s": LOGGER_GRACE_S}
    return _spec(args, "logger", parallel_logger, _pickled(make_logger), args, **options)


def replay_spec(
    make_replay_train: Callable, make_replay_eval: Callable, make_stream: Callable, args: elements.Config
) -> RoleSpec:
    """The replay server."""
    factories = map(_pickled, (make_replay_train, make_replay_eval, make_stream))
    return _spec(args, "replay", parallel_replay, *factories, args, environ=ONE_THREAD | KEEP_MEMORY, stop_order=1)


def env_specs(make_env_train: Callable, make_env_eval: Callable, args: elements.Config) -> list[RoleSpec]:
    """Workers of `envs_per_worker` environments each, training environments first."""
    total = args.envs + args.eval_envs
    groups = ((make_env_train, range(args.envs), False), (make_env_eval, range(args.envs, total), True))
    return [
        env_spec(make_env, list(env_ids[start : start + args.envs_per_worker]), is_eval, args)
        for make_env, env_ids, is_eval in groups
        for start in range(0, len(env_ids), args.envs_per_worker)
    ]


def env_spec(make_env: Callable, env_ids: list[int], is_eval: bool, args: elements.Config) -> RoleSpec:
    """One worker, which the fleet can go on without."""
    call = (_pickled(make_env), env_ids, args, is_eval)
    return _spec(args, f"env{env_ids[0]}", env_worker, *call, optional=True, environ=ONE_THREAD)


def _spec(args: elements.Config, name: str, target: Callable, *call: Any, **options: Any) -> RoleSpec:
    policy = RestartPolicy(restart=args.restart or args.max_restarts == 0, max_restarts=args.max_restarts)
    return RoleSpec(name, target, call, policy=policy, seed=args.seed, **options)


def _pickled(factory: bytes | Callable) -> bytes:
    return factory if isinstance(factory, bytes) else cloudpickle.dumps(factory)
