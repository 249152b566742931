"""The agent process: one agent object shared by the actor and the learner, each in a thread."""

import threading
from collections.abc import Callable

import elements

from dreamfleet import lifecycle
from dreamfleet.roles.actor import parallel_actor
from dreamfleet.roles.learner import parallel_learner
from dreamfleet.roles.options import with_defaults
from dreamfleet.roles.wiring import load_factory


def parallel_agent(make_agent: bytes | Callable, args: elements.Config) -> None:
    """Acts and learns until the learner is done; the first failure of either side is raised."""
    args = with_defaults(args)
    agent = load_factory(make_agent)()
    barrier = threading.Barrier(2)
    errors: list[BaseException] = []

    def run(role: Callable) -> None:
        try:
            role(agent, barrier, args)
        except BaseException as e:
            errors.append(e)
        finally:
            lifecycle.request_stop()  # neither side goes on alone

    threads = [
        threading.Thread(target=run, args=(role,), name=role.__name__) for role in (parallel_learner, parallel_actor)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
