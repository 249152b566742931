"""Every role in one process, one after the other: the same code without threads and sockets, the same for a seed."""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dreamfleet import lifecycle, rpc
from dreamfleet.base import waits
from dreamfleet.base.accelerators import describe_devices
from dreamfleet.base.seeds import derive_seed, seed_process
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.envs import EnvGroup
from dreamfleet.launch.factories import Factories
from dreamfleet.launch.history import describe_loss
from dreamfleet.launch.outcome import COMPLETE, STOPPED, Outcome, stop_signals
from dreamfleet.launch.supervise.incarnations import Incarnations
from dreamfleet.launch.supervise.lifeline import resident_mb
from dreamfleet.metrics.progress import read_progress
from dreamfleet.metrics.terminal import Terminal
from dreamfleet.options import Args, RoleOptions, read_args
from dreamfleet.roles.actor.role import Actor
from dreamfleet.roles.agent import construct
from dreamfleet.roles.env import EnvWorker
from dreamfleet.roles.learner.role import Learner
from dreamfleet.roles.logger import LoggerRole
from dreamfleet.roles.periodic import Every
from dreamfleet.roles.replay.role import ReplayRole
from dreamfleet.roles.wiring import Handler, Peers, load_factory


def _nothing() -> None:
    pass


def serial(
    make: Factories,
    args: Args,
    on_turn: Callable[[], None] = _nothing,
    on_compile: Callable[[], None] = _nothing,
    is_asked: Callable[[], bool] = lambda: False,
) -> bool:
    """Runs until the run is complete or was stopped; returns whether it is complete.

    `on_turn` is called between two rounds of acting and learning, `on_compile` before the first update.

    With `leg`, the run writes itself down every so many steps and goes on from nothing but that, as a resumed run does:
    both are the same to the bit. It also ends between two legs if it `is_asked` to.
    """
    options = read_args(args)
    make = Factories(*map(load_factory, make))
    agent = construct(make.make_agent)
    leg = Leg(agent, make, options)
    while not leg.run(on_turn, on_compile) and not is_asked():
        leg, on_compile = Leg(agent, make, options), _nothing
    return leg.is_complete


class Leg:
    """All roles, made from what the log directory holds, up to the end of the leg or of the run."""

    def __init__(self, agent: Any, make: Factories, options: RoleOptions):
        options = dataclasses.replace(options, episode_timeout=math.inf)  # all are silent while one of them works
        if options.leg:  # saves and logs at the end of the leg, and not when the time has come; there are no reports
            options = dataclasses.replace(options, save_every=0.0, save_every_steps=0, log_every=0.0, report_every=0.0)
        self._options = options
        if options.leg:  # a leg is the same whichever process it is run in
            lifecycle.set_incarnation(0)
        replay = self._replay = ReplayRole(make.make_replay_train(), make.make_replay_eval(), make.make_stream, options)
        self._logger = LoggerRole(make.make_logger(), options)
        for role in (replay, self._logger):
            role.restore(Checkpoints(options.logdir))
        number = replay.limiter.inserts // options.leg if options.leg else 0
        self._end = (number + 1) * options.leg if options.leg else math.inf
        peers = Peers(DirectClient("replay", replay.methods()), DirectClient("logger", self._logger.methods()))
        actor = Actor(agent, peers, options, send_delay_s=0.0)
        act = DirectClient("actor", {method: _answer(actor, parse) for method, parse in actor.parsers().items()})
        if options.leg:
            lifecycle.set_incarnation(number)
        seed_process(derive_seed(options.seed, "serial", 0, lifecycle.incarnation()))
        self._workers = _make_workers(make.make_env_train, make.make_env_eval, act, options)
        self._learner = Learner(agent, peers, dataclasses.replace(options, prefetch=1), reads_apart=True)
        self._learner.restore()
        self._learner.observe(replay.counts())
        self._should_log, self._should_show = Every(options.log_every), Every(1.0)
        lifecycle.set_state("running")

    @property
    def is_complete(self) -> bool:
        return self._learner.is_complete()

    def run(self, on_turn: Callable[[], None], on_compile: Callable[[], None]) -> bool:
        """Acts and learns; returns whether the run is over."""
        learner, limiter = self._learner, self._replay.limiter
        learner.turn.acquire()
        learner.start()
        while not learner.is_over() and learner.step < self._end:
            # Learning comes first, since a leg ends, as a run does, once its last steps were taken.
            while limiter.may_sample(self._options.batch_size) and not learner.has_all_updates():
                if (batch := learner.next_batch()) is None:
                    break
                on_compile()
                on_compile = _nothing
                learner.train(batch)
                learner.run_periodic()
                learner.wait_saved()  # steps that are taken meanwhile would be in it or not, as threads go
                if self._options.train_ratio <= 0:  # no limit: both sides take turns
                    break
            if limiter.may_insert():
                for worker in self._workers:
                    worker.step()
                learner.observe(self._replay.counts())
            if self._should_show():
                self._logger.write_progress()
            if self._should_log():
                self._logger.write()
            learner.raise_failure()  # of a stream that nobody waits for
            on_turn()
        is_over = learner.is_over()
        self._finish()
        return is_over

    def _finish(self) -> None:
        self._learner.finish()
        self._replay.limiter.close()  # which threads of the agent may be waiting at
        self._learner.wait_unread()
        for part in (*self._workers, self._logger, self._replay):
            part.close()


def run_serial(make: Factories, options: RoleOptions) -> Outcome:
    """Runs in the log directory that the options name, with what a user sees of it on the terminal.

    The caller has the directory's lock.
    """

    def draw(state: str, *waited: str) -> None:
        agent = {"state": state, "figures": lifecycle.figures(), "memory_mb": resident_mb()}
        agent["waits"] = [{"what": what, "seconds": 0.0, "share": 1.0} for what in waited]
        elapsed_s = time.monotonic() - start
        status = {"state": state, "mode": "serial", "elapsed_s": elapsed_s, "roles": {"agent": agent}}
        terminal.update(read_progress(options.logdir), status)

    def show() -> None:
        if should_show():
            draw(lifecycle.state())
            if terminal.is_lost and not received:
                received.append("SIGPIPE")
                lifecycle.request_stop()

    def show_compiling() -> None:
        if describe_devices():
            draw("running", waits.TRAIN_STEP())

    should_show, start = Every(1.0), time.monotonic()
    with Terminal(options.steps, total_updates=options.updates) as terminal, _stop_on_signals(options) as received:
        try:
            lifecycle.set_incarnation(_count_life(options))
            is_complete = serial(make, options, show, show_compiling, is_asked=lambda: bool(received))
            lifecycle.raise_failure()  # of a thread, such as the one that writes checkpoints
            draw("complete" if is_complete else "stopped")
        finally:
            lifecycle.reset()
    return Outcome(COMPLETE) if is_complete else Outcome(STOPPED, received[0] if received else "")


def _count_life(options: RoleOptions) -> int:
    """The number of this life of the run, which counts as used from here on."""
    incarnations = Incarnations(Path(options.logdir))
    with contextlib.suppress(OSError):  # a full disk, which others report
        incarnations.use(incarnations.first)
    return incarnations.first


@contextlib.contextmanager
def _stop_on_signals(options: RoleOptions) -> Iterator[list[str]]:
    """Lets signals end the run in order, with legs the first one at the end of its leg; yields those that came.

    The second Ctrl-C tells what it costs to wait no longer, and the third does not wait.
    """
    received: list[str] = []

    def handle(name: str) -> None:
        received.append(name)
        if len(received) > bool(options.leg):
            lifecycle.request_stop()
        if name == "SIGINT" and len(received) == 2:
            # Not printed: the signal may have come in the middle of a print.
            os.write(2, f"Ctrl-C again kills at once: {describe_loss(options.logdir)}\n".encode())
        elif name == "SIGINT" and len(received) > 2:
            raise KeyboardInterrupt

    with stop_signals(handle):
        yield received


class DirectClient:
    """Calls a role's handlers in place; arrays are copied, as a message would."""

    def __init__(self, peer: str, methods: Mapping[str, Handler]):
        self.peer, self.session, self.is_plain = peer, "", False
        self._methods = methods

    def call(self, method: str, data: Any = None, *, meta: dict | None = None, **delivery: Any) -> "DirectFuture":
        if isinstance(data, dict):
            data = {k: np.array(v) if isinstance(v, np.ndarray) else v for k, v in data.items()}
        reply = self._methods[method](data, meta or {})
        return DirectFuture(reply) if isinstance(reply, rpc.Reply) else DirectFuture(rpc.Reply(reply, {}))

    def prepare(self, method: str, data: Any, meta: dict | None = None) -> rpc.Prepared:
        return rpc.Prepared(lambda timeout_s: self.call(method, data, meta=meta).result(timeout_s), data)

    def wait_connected(self, timeout_s: float | None = None) -> bool:
        return True

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


class DirectFuture:
    """The answer of a call that is already done."""

    def __init__(self, reply: rpc.Reply):
        self.meta = reply.meta
        self._data = reply.data

    def result(self, timeout_s: float | None = None) -> Any:
        return self._data

    def done(self) -> bool:
        return True

    def add_done_callback(self, fn: Callable[["DirectFuture"], None]) -> None:
        fn(self)


def _answer(actor: Actor, parse: Callable) -> Handler:
    def act(data: Any, meta: dict) -> Any:
        (reply,), transition = actor.act([parse(data, meta)])
        actor.send(transition)
        return reply

    return act


def _make_workers(make_train: Callable, make_eval: Callable, act: Any, options: RoleOptions) -> list[EnvWorker]:
    total = options.envs + options.eval_envs
    groups = [(make_train, range(options.envs), False), (make_eval, range(options.envs, total), True)]
    return [
        EnvWorker(EnvGroup(make, ids), list(ids), is_eval, act, options.act_timeout)
        for make, ids, is_eval in groups
        if ids
    ]
