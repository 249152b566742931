"""Every role in one process, one after the other: the same code without threads and sockets, the same for a seed."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import elements
import numpy as np

from dreamfleet import lifecycle, rpc
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.launch.factories import Factories
from dreamfleet.launch.lock import lock_logdir
from dreamfleet.metrics.progress import read_progress
from dreamfleet.metrics.terminal import Terminal
from dreamfleet.roles.actor import Actor
from dreamfleet.roles.clock import Every
from dreamfleet.roles.env import EnvWorker
from dreamfleet.roles.learner import Learner
from dreamfleet.roles.logger import LoggerRole
from dreamfleet.roles.options import with_defaults
from dreamfleet.roles.replay import ReplayRole
from dreamfleet.roles.wiring import load_factory


def serial(
    make_agent: Callable,
    make_replay_train: Callable,
    make_replay_eval: Callable,
    make_env_train: Callable,
    make_env_eval: Callable,
    make_stream: Callable,
    make_logger: Callable,
    args: elements.Config,
    on_turn: Callable[[], None] = lambda: None,
) -> None:
    """Runs to the end of the run; `on_turn` is called between two rounds of acting and learning."""
    args = with_defaults(args)
    agent = load_factory(make_agent)()
    replays = load_factory(make_replay_train)(), load_factory(make_replay_eval)()
    replay_role = ReplayRole(*replays, load_factory(make_stream), args)
    logger_role = LoggerRole(load_factory(make_logger)(), args)
    for role in (replay_role, logger_role):
        role.restore(Checkpoints(args.logdir))
    replay, logger = DirectClient("replay", replay_role.methods()), DirectClient("logger", logger_role.methods())
    actor = Actor(agent, replay, logger, args, send_delay_s=0.0)
    parsers = {"act": actor.parser.parse_one, "act_many": actor.parser.parse_many}
    act = DirectClient("actor", {method: _answer(actor, parse) for method, parse in parsers.items()})
    workers = _make_workers(load_factory(make_env_train), load_factory(make_env_eval), act, args)
    learner = Learner(agent, replay, logger, args.update(prefetch=1), wait_s=0.0)
    learner.restore()
    batches = learner.batches()
    should_log, should_show = Every(args.log_every), Every(1.0)
    lifecycle.set_state("running")
    while not learner.is_over():
        if replay_role.limiter.may_insert():
            for worker in workers:
                worker.step()
            learner.observe(replay_role.counts())
        while replay_role.limiter.may_sample(args.batch_size) and (batch := next(batches, None)):
            learner.train(batch)
            learner.do_what_is_due()
        if should_show():
            logger_role.write_progress()
        if should_log():
            logger_role.write()
        on_turn()
    learner.finish()
    for part in (*workers, logger_role, replay_role):
        part.close()


def run_serial(factories: Factories, args: elements.Config) -> None:
    """Runs in the log directory that the arguments name, alone, with what a user sees of it on the terminal."""
    args = with_defaults(args)

    def show() -> None:
        if should_show():
            status = {"state": lifecycle.state(), "roles": {}}
            terminal.update(read_progress(args.logdir), status)

    should_show = Every(1.0)
    with lock_logdir(args.logdir), Terminal(args.steps) as terminal, _stop_on_signals() as received:
        try:
            serial(*factories, args, on_turn=show)
        finally:
            lifecycle.reset()
    if signal.SIGINT in received:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[list[int]]:
    """Lets SIGINT and SIGTERM end the run in order; yields the signals that came."""
    received: list[int] = []

    def handle(number: int, _: Any) -> None:
        received.append(number)
        lifecycle.request_stop()

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class DirectClient:
    """Calls a role's handlers in place; arrays are copied, as a message would."""

    def __init__(self, peer: str, methods: Mapping[str, Callable[[Any, dict], Any]]):
        self.peer = peer
        self._methods = methods

    def call(
        self,
        method: str,
        data: Any = None,
        *,
        meta: dict | None = None,
        repeat: bool = False,
        deadline_s: float | None = None,
    ) -> "DirectFuture":
        if isinstance(data, dict):
            data = {k: np.array(v) if isinstance(v, np.ndarray) else v for k, v in data.items()}
        reply = self._methods[method](data, meta or {})
        return DirectFuture(reply) if isinstance(reply, rpc.Reply) else DirectFuture(rpc.Reply(reply, {}))

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


def _answer(actor: Actor, parse: Callable) -> Callable[[Any, dict], Any]:
    def act(data: Any, meta: dict) -> Any:
        (reply,), transition = actor.act([parse(data, meta)])
        actor.hand_on(transition)
        return reply

    return act


def _make_workers(make_train: Callable, make_eval: Callable, act: Any, args: elements.Config) -> list[EnvWorker]:
    groups = [(make_train, range(args.envs), False), (make_eval, range(args.envs, args.envs + args.eval_envs), True)]
    return [EnvWorker(make, list(ids), is_eval, act, args.act_timeout) for make, ids, is_eval in groups if ids]
