"""The agent process: one agent object shared by the actor and the learner, each in a thread."""

import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import Callable

from dreamfleet import lifecycle, rpc
from dreamfleet.agent.contract import Agent
from dreamfleet.base import waits
from dreamfleet.base.accelerators import describe_devices, find_unused
from dreamfleet.base.addresses import is_ipc
from dreamfleet.base.extras import install_command
from dreamfleet.options import SERVERS, Args, RoleOptions, key_file, read_args
from dreamfleet.roles.actor.role import parallel_actor
from dreamfleet.roles.gang.member import open_gang
from dreamfleet.roles.hello import own_run_id
from dreamfleet.roles.learner.role import learn, parallel_learner
from dreamfleet.roles.wiring import load_factory

log = logging.getLogger("dreamfleet.agent")

ACTOR_STOP_S = 30.0

Side = Callable[[Agent, threading.Barrier, RoleOptions], None]


@lifecycle.stopped_by_signals()
def parallel_agent(make_agent: bytes | Callable, args: Args) -> None:
    """Acts and learns until the learner is done; the first failure of either side is raised."""
    options = read_args(args)
    if not options.run_id:  # started apart from a fleet
        options = dataclasses.replace(options, run_id=own_run_id(options.logdir))
        if not all(is_ipc(options.address(role)) for role in SERVERS):
            rpc.make_key(key_file(options))
    make = load_factory(make_agent)
    if options.replicas > 1:
        run_replica(make, options)
    else:
        run_sides(construct(make), parallel_learner, parallel_actor, options)


def run_replica(make_agent: Callable[..., Agent], options: RoleOptions) -> None:
    """The same for one of several agents that are trained as one; the factory is given its place among them."""
    gang = open_gang(options)
    try:
        if place := gang.join():
            learner = functools.partial(learn, gang=gang)
            run_sides(construct(functools.partial(make_agent, place=place)), learner, parallel_actor, options)
    finally:
        gang.close()


def construct(make_agent: Callable[[], Agent]) -> Agent:
    """Makes the agent, and says what it computes on."""
    with lifecycle.waiting(waits.AGENT_CONSTRUCTION()):
        agent = make_agent()
    if devices := describe_devices():
        log.info("device: %s", devices)
    kind, extra = find_unused()
    if kind:
        remedy = f"run {install_command(extra)}" if extra else "install JAX for it"
        log.warning("this machine has %s, but JAX cannot use it: %s, or set --jax.platform cpu", kind, remedy)
    return agent


def run_sides(agent: Agent, learn: Side, act: Side, options: RoleOptions, actor_stop_s: float = ACTOR_STOP_S) -> None:
    """Runs both sides of an agent in threads; an actor that takes longer than `actor_stop_s` to stop is abandoned."""
    barrier = threading.Barrier(2)

    def run(side: Side) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):  # the other side has failed, and says of what
            side(agent, barrier, options)
        lifecycle.request_stop()  # neither side goes on alone

    learner = lifecycle.spawn(run, learn, name="learner")
    actor = lifecycle.spawn(run, act, name="actor")
    learner.join()  # it may still write a checkpoint when the actor has ended
    actor.join(actor_stop_s)
    if actor.is_alive():
        log.warning("the policy server did not stop within %g s after the learner; exiting without it", actor_stop_s)
    lifecycle.raise_failure()
