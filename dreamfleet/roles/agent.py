"""The agent process: one agent object shared by the actor and the learner, each in a thread."""

import logging
import threading
from collections.abc import Callable

from dreamfleet import lifecycle
from dreamfleet.agent.contract import Agent
from dreamfleet.options import Args, RoleOptions, read_args
from dreamfleet.roles.actor.role import parallel_actor
from dreamfleet.roles.learner.role import parallel_learner
from dreamfleet.roles.wiring import load_factory

log = logging.getLogger("dreamfleet.agent")

ACTOR_STOP_S = 30.0

Side = Callable[[Agent, threading.Barrier, RoleOptions], None]


def parallel_agent(make_agent: bytes | Callable, args: Args) -> None:
    """Acts and learns until the learner is done; the first failure of either side is raised."""
    run_sides(load_factory(make_agent)(), parallel_learner, parallel_actor, read_args(args))


def run_sides(agent: Agent, learn: Side, act: Side, options: RoleOptions, actor_stop_s: float = ACTOR_STOP_S) -> None:
    """Runs both sides of an agent in threads; an actor that outlives the learner by `actor_stop_s` is left behind."""
    barrier = threading.Barrier(2)
    errors: list[BaseException] = []

    def run(side: Side) -> None:
        try:
            side(agent, barrier, options)
        except BaseException as e:
            errors.append(e)
        finally:
            lifecycle.request_stop()  # neither side goes on alone

    learner = threading.Thread(target=run, args=(learn,), name="learner", daemon=True)
    actor = threading.Thread(target=run, args=(act,), name="actor", daemon=True)
    learner.start()
    actor.start()
    learner.join()  # it may still write a checkpoint when the actor has ended
    actor.join(actor_stop_s)
    if actor.is_alive():
        log.warning("the actor did not stop within %g s of the learner: left behind", actor_stop_s)
    if errors:
        raise errors[0]
