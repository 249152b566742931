"""A whole fleet: addresses, topology, and the supervisor that runs it, on this machine unless a launcher says where."""

import contextlib
import dataclasses
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dreamfleet
from dreamfleet import lifecycle, rpc
from dreamfleet.base import pickles
from dreamfleet.base.joined import FOLDER
from dreamfleet.base.seeds import replica_seed
from dreamfleet.launch.digest import LogDigest
from dreamfleet.launch.factories import Factories
from dreamfleet.launch.history import describe_loss, has_steps
from dreamfleet.launch.invitation import FILE as JOIN_FILE
from dreamfleet.launch.invitation import Invitation, describe_joining
from dreamfleet.launch.lock import LogdirInUse, lock_logdir
from dreamfleet.launch.machines import JoinedMachines
from dreamfleet.launch.outcome import Outcome
from dreamfleet.launch.reporting import Reporter
from dreamfleet.launch.supervise.process import StartRole, start_here
from dreamfleet.launch.supervise.role_record import Cause
from dreamfleet.launch.supervise.supervisor import Supervisor
from dreamfleet.launch.topology import RestartPolicy, RoleSpec
from dreamfleet.metrics.progress import Progress, RoleFigures, read_progress
from dreamfleet.metrics.terminal import Terminal
from dreamfleet.migration.logdirs import refuse_reference
from dreamfleet.options import SERVERS, Args, Options, RoleOptions, key_file, read_args
from dreamfleet.options.check import check_ray
from dreamfleet.roles.agent import parallel_agent
from dreamfleet.roles.env import env_worker
from dreamfleet.roles.hello import own_id, own_run_id
from dreamfleet.roles.leasing import leased_env_worker
from dreamfleet.roles.logger import parallel_logger
from dreamfleet.roles.protocol import VERSION
from dreamfleet.roles.replay.role import parallel_replay

FindProgress = Callable[[dict], Progress | None]

LOGGER_GRACE_S = 30.0
MOST_JOINED = 1000  # processes with workers that share a log directory
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
    args: Args,
) -> None:
    """Runs all roles to the end of the run.

    Returns at `steps`, `updates` or `duration`, or after an orderly stop, and raises RunFailed with the first cause
    when a role's restart budget is spent, and KeyboardInterrupt after a Ctrl-C.
    """
    make = Factories(
        make_agent, make_replay_train, make_replay_eval, make_env_train, make_env_eval, make_stream, make_logger
    )
    options = read_args(args)
    with lock_logdir(options.logdir):
        if not has_steps(options.logdir):
            refuse_reference(options.logdir)
        outcome = run_parallel(make, options)
    if outcome.stop_reason == "SIGINT":
        raise KeyboardInterrupt


def run_parallel(
    make: Factories,
    options: RoleOptions,
    all_options: Options | None = None,
    make_replicas: Callable[[str], list[RoleSpec]] = lambda gang: [],
) -> Outcome:
    """`combined` for whoever has the factories in one piece, and the lock of the log directory.

    Where all options are known, the log directory gets a file with which others can join. On a cluster, the first of
    several replicas also starts the others, as roles that `make_replicas` describes for the address where they meet.
    """

    def run(options: RoleOptions, start_role: StartRole) -> Outcome:
        with resolved_addresses(options) as options:
            directory = Path(options.logdir)
            if all_options:
                Invitation.make(all_options, options).write(directory / JOIN_FILE)
            for line in describe_joining(options, directory / JOIN_FILE if all_options else None):
                print(line, flush=True)
            options = dataclasses.replace(options, run_id=own_run_id(directory), owner=uuid.uuid4().hex)
            is_cluster = options.launcher == "ray" and options.replicas > 1
            specs = fleet_specs(make, options) + (make_replicas(options.gang) if is_cluster else [])
            return run_fleet(specs, options, directory, lambda: describe_loss(directory), start_role=start_role)

    if options.launcher == "ray":
        check_ray(options, options.ray)
        from dreamfleet.launch.ray.launcher import run_on_ray  # needs the extra

        return run_on_ray(run, options)
    return run(options, start_here)


def parallel_envs(make_env_train: Callable, make_env_eval: Callable, args: Args) -> None:
    """Runs all environments of a fleet whose other roles are elsewhere, until it is stopped."""
    with owned_directory(read_args(args), "envs", is_leased=True) as (options, directory):
        outcome = join_fleet(env_specs(make_env_train, make_env_eval, options, first=None), directory, options)
    if outcome.stop_reason == "SIGINT":
        raise KeyboardInterrupt


@contextlib.contextmanager
def owned_directory(options: RoleOptions, name: str, *, is_leased: bool = False) -> Iterator[tuple[RoleOptions, Path]]:
    """Where the logs and the status of roles go that join a fleet, `joined/NAME`, for one process at a time.

    The next one with leased environments has `joined/NAME-2`, and so on. The options get the owner's name that is kept
    there for this machine, so that after a restart they count as the same worker.
    """
    with contextlib.ExitStack() as stack:
        directory = _lock_next(stack, Path(options.logdir) / FOLDER, name, MOST_JOINED if is_leased else 1)
        owner = own_id(directory / f"owner-{socket.gethostname()[:64]}")
        yield dataclasses.replace(options, owner=owner), directory


def _lock_next(stack: contextlib.ExitStack, root: Path, name: str, most: int) -> Path:
    """Locks the first of several directories that nobody has."""
    names = [name, *(f"{name}-{number}" for number in range(2, most + 1))]
    for name in names[:-1]:
        with contextlib.suppress(LogdirInUse):
            stack.enter_context(lock_logdir(root / name))
            return root / name
    stack.enter_context(lock_logdir(root / names[-1]))
    return root / names[-1]


def join_fleet(specs: list[RoleSpec], directory: Path, options: RoleOptions) -> Outcome:
    """Runs roles of a fleet whose other roles are elsewhere."""
    figures = RoleFigures()

    def find_progress(status: dict) -> Progress | None:
        return read_progress(options.logdir) if "logger" in status["roles"] else figures.progress(status)

    # The one that hears that the run is complete speaks for all.
    specs = [dataclasses.replace(spec, ends_run=True) for spec in specs]
    with Reporter(options, directory) as reporter:
        return run_fleet(
            specs,
            options,
            directory,
            find_progress=find_progress,
            describe=lambda: {"env_rate": round(figures.env_rate, 1)},
            on_status=reporter.update,
            on_death=reporter.add_failure,
        )


def run_fleet(
    specs: list[RoleSpec],
    options: RoleOptions,
    directory: Path,
    describe_loss: Callable[[], str] = lambda: "steps under way are lost",
    find_progress: FindProgress | None = None,
    start_role: StartRole = start_here,
    describe: Callable[[], dict] = dict,
    on_status: Callable[[dict], None] = lambda _: None,
    on_death: Callable[[Cause, Path], None] = lambda *_: None,
) -> Outcome:
    """Supervises the roles and shows how they do.

    `find_progress` makes what is shown of the status; by default it is what the logger wrote. `describe` adds to the
    status, `on_status` and `on_death` hear of it and of roles that died.
    """
    find_progress = find_progress or (lambda _: read_progress(options.logdir))
    machines = JoinedMachines(directory)
    about = {"host": socket.gethostname()[:64], "package": dreamfleet.__version__, "protocol": VERSION}

    def show(status: dict) -> None:
        on_status(status)
        digest.tell_repeats()
        terminal.update(find_progress(status), status)
        if terminal.is_lost:
            supervisor.request_stop("SIGPIPE")

    with (
        Terminal(options.steps, total_updates=options.updates) as terminal,
        contextlib.closing(LogDigest(terminal.print)) as digest,
    ):
        supervisor = Supervisor(
            specs,
            directory,
            heartbeat_timeout_s=options.heartbeat_timeout,
            stop_grace_s=options.stop_grace,
            start_role=start_role,
            on_log=digest.add,
            on_status=show,
            on_death=on_death,
            describe=lambda: {**about, **describe(), "machines": machines.describe()},
            describe_loss=describe_loss,
        )
        try:
            with supervisor.install_signals():
                return supervisor.run()
        finally:
            lifecycle.reset()  # a role in a thread may have asked this process to stop


@contextlib.contextmanager
def resolved_addresses(options: RoleOptions) -> Iterator[RoleOptions]:
    """The options with `{auto}` filled in, and the run's key where roles talk over TCP."""
    addresses = {f"{role}_addr": rpc.resolve_addr(options.address(role), options.transport) for role in SERVERS}
    if options.replicas > 1 or any(not address.startswith("ipc:") for address in addresses.values()):
        rpc.make_key(key_file(options))
    try:
        yield dataclasses.replace(options, **addresses)
    finally:
        for address in addresses.values():
            rpc.remove_addr(address)


def fleet_specs(make: Factories, options: RoleOptions) -> list[RoleSpec]:
    """The fleet as data, in the order in which its roles are started."""
    specs = [] if options.remote_logger else [logger_spec(make, options)]
    specs.append(agent_spec(make, options))
    if not options.remote_replay:
        specs.append(replay_spec(make, options))
    if not options.remote_envs:
        specs += env_specs(make.make_env_train, make.make_env_eval, options)
    return specs


def agent_spec(make: Factories, options: RoleOptions) -> RoleSpec:
    """The agent, with whose end the run is complete."""
    call = (_pickled(make.make_agent), options)
    in_thread = not options.agent_process
    return _spec(options, "agent", parallel_agent, *call, is_main=True, in_thread=in_thread, environ=agent_environ())


def agent_environ() -> dict[str, str]:
    """Variables of the agent's process, beside the tunables that the user has set."""
    tunables = [os.environ.get("GLIBC_TUNABLES"), HUGE_PAGES]
    return KEEP_MEMORY | {"GLIBC_TUNABLES": ":".join(filter(None, tunables))}


def logger_spec(make: Factories, options: RoleOptions) -> RoleSpec:
    """The logger, which is stopped last so that it hears everyone out, and has time to tell tracking services."""
    call = (_pickled(make.make_logger), options)
    return _spec(
        options, "logger", parallel_logger, *call, environ=ONE_THREAD, stop_order=2, stop_grace_s=LOGGER_GRACE_S
    )


def replay_spec(make: Factories, options: RoleOptions) -> RoleSpec:
    """The replay server."""
    factories = map(_pickled, (make.make_replay_train, make.make_replay_eval, make.make_stream))
    environ = ONE_THREAD | KEEP_MEMORY
    return _spec(options, "replay", parallel_replay, *factories, options, environ=environ, stop_order=1)


def env_specs(
    make_env_train: Callable, make_env_eval: Callable, options: RoleOptions, first: int | None = 0
) -> list[RoleSpec]:
    """Workers of `envs_per_worker` environments each, training environments first.

    They are numbered from `first`, or else as the policy server says.
    """
    target = env_worker if first is not None else leased_env_worker
    first = first or 0
    size, middle = options.envs_per_worker, first + options.envs
    last = middle + options.eval_envs
    groups = ((make_env_train, range(first, middle), False), (make_env_eval, range(middle, last), True))
    return [
        env_spec(make_env, list(env_ids[start : start + size]), is_eval, options, target)
        for make_env, env_ids, is_eval in groups
        for start in range(0, len(env_ids), size)
    ]


def env_spec(
    make_env: Callable, env_ids: list[int], is_eval: bool, options: RoleOptions, target: Callable = env_worker
) -> RoleSpec:
    """One worker, which the fleet can go on without."""
    call = (_pickled(make_env), env_ids, options, is_eval)
    return _spec(options, f"env{env_ids[0]}", target, *call, optional=True, is_spread=True, environ=ONE_THREAD)


def _spec(options: RoleOptions, name: str, target: Callable, *call: Any, **how: Any) -> RoleSpec:
    policy = RestartPolicy(restart=options.restart or options.max_restarts == 0, max_restarts=options.max_restarts)
    return RoleSpec(name, target, call, policy=policy, seed=replica_seed(options.seed, options.replica), **how)


def _pickled(factory: bytes | Callable) -> bytes:
    return factory if isinstance(factory, bytes) else pickles.dumps(factory)
