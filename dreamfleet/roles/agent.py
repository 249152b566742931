"""The agent process: one agent object shared by the actor and the learner, each in a thread."""

import logging
import threading
from collections.abc import Callable

from dreamfleet import lifecycle
from dreamfleet.options import Args, read_args
from dreamfleet.roles.actor.role import parallel_actor
from dreamfleet.roles.learner.role import parallel_learner
from dreamfleet.roles.wiring import load_factory

log = logging.getLogger("dreamfleet.agent")

ACTOR_STOP_S = 30.0


def parallel_agent(make_agent: bytes | Callable, args: Args) -> None:
    """Acts and learns until the learner is done; the first failure of either side is raised."""
    options = read_args(args)
    agent = load_factory(make_agent)()
    barrier = threading.Barrier(2)
    errors: list[BaseException] = []

    def run(role: Callable) -> None:
        try:
            role(agent, barrier, options)
        except BaseException as e:
            errors.append(e)
        finally:
            lifecycle.request_stop()  # neither side goes on alone

    learner, actor = (
        threading.Thread(target=run, args=(role,), name=role.__name__, daemon=True)
        for role in (parallel_learner, parallel_actor)
    )
    learner.start()
    actor.start()
    learner.join()  # it may still write a checkpoint when the actor has ended
    actor.join(ACTOR_STOP_S)
    if actor.is_alive():
        log.warning("The actor did not stop within %g s of the learner: left behind.", ACTOR_STOP_S)
    if errors:
        raise errors[0]
