"""The thread that trains, and the wait for the end of the run beside it."""

import threading
from typing import TYPE_CHECKING

from dreamfleet import lifecycle

if TYPE_CHECKING:
    from dreamfleet.roles.learner.role import Learner


def train_until_over(learner: "Learner") -> None:
    """Trains in a thread of its own, and returns when the run is over and no update is under way.

    A stream that holds batches back in a thread of the agent's cannot be woken at the end of the run. The thread that
    waits for such a batch is left behind: it is not its turn any more. One that is in its first update, which may have
    to be compiled for minutes, is left behind after a stop: it has learned nothing yet.
    """

    def train() -> None:
        with learner.turn:
            if not learner.is_over():
                learner.start()
            while not learner.is_over() and (batch := learner.next_batch()) is not None and learner.may_update(batch):
                learner.train(batch)
                learner.run_periodic()
                lifecycle.beat()

    def run() -> None:
        try:
            train()
        except BaseException as error:
            learner.blame_gang(error)
            learner.fail(error)
        is_done.set()
        learner.look()

    is_done = threading.Event()
    lifecycle.spawn(run, name="training")
    with lifecycle.on_stop(learner.look):
        learner.wait_for(lambda: is_done.is_set() or learner.is_over())
    learner.leave_gang()
    learner.take_turn()
    learner.raise_failure()
