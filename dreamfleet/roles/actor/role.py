"""The actor: batches observations, answers with the policy's actions, and only then hands the transitions on."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamfleet import lifecycle
from dreamfleet.agent.contract import Agent
from dreamfleet.errors import BadRequest
from dreamfleet.metrics import Rate
from dreamfleet.options import Args, RoleOptions, read_args
from dreamfleet.roles.actor import transitions
from dreamfleet.roles.actor.carries import make_carries
from dreamfleet.roles.actor.sender import DELAY_S, TransitionSender
from dreamfleet.roles.actor.transitions import ActRequest, Arrays, RequestParser
from dreamfleet.roles.reports import RoleReports
from dreamfleet.roles.wiring import Caller, connect, serve

log = logging.getLogger("dreamfleet.actor")

LIVE_WINDOW_S = 1.0  # an environment that asked within this time is expected to ask again
DRAIN_S = 2.0


def parallel_actor(agent: Agent, barrier: threading.Barrier, args: Args) -> None:
    """Serves actions from the moment the learner has restored the agent until the process is asked to stop."""
    options = read_args(args)
    replay = connect(options, "replay", "actor")
    logger = connect(options, "logger", "actor")
    reports = RoleReports(options, "actor", "actor")
    actor = Actor(agent, replay, logger, options)
    server = serve(options, "actor")
    server.bind_batched(
        {"act": actor.parser.parse_one, "act_many": actor.parser.parse_many},
        actor.act,
        post=actor.hand_on,
        batch=actor.batch_size,
        max_wait_ms=options.actor_wait_ms,
        workers=options.actor_threads if options.actor_threads > 1 else 0,
        is_full=actor.is_everyone_waiting,
        post_backlog=options.backlog,
        takes_meta=True,
    )
    with lifecycle.waiting("learner: restored agent"):
        barrier.wait()  # no data before the learner has restored
    with lifecycle.on_stop(actor.stop), server:
        log.info("acting at %s, batch %d", server.addr, actor.batch_size)
        while not lifecycle.stopping():
            actor.wait(options.log_every)
            actor.drop_stale()
            reports.send({**actor.stats(), **server.stats()})
    actor.drain(DRAIN_S)
    for client in (replay, logger, reports):
        client.close()


class Actor:
    """The policy behind the server: requests in, answers and transitions out."""

    def __init__(
        self,
        agent: Agent,
        replay: Caller,
        logger: Caller,
        options: RoleOptions,
        send_delay_s: float = DELAY_S,
    ):
        self.batch_size = options.inference_batch
        self.parser = RequestParser(getattr(agent, "obs_space", None))
        self.wake = threading.Event()
        if options.actor_batch > self.batch_size:
            log.warning("actor_batch=%d is more than the environments; using %d", options.actor_batch, self.batch_size)
        num_envs = max(options.envs + options.eval_envs, self.batch_size)
        self._carries = make_carries(agent, options.episode_timeout, 2 * num_envs if options.remote_envs else num_envs)
        self._live = LiveEnvs()
        self._sender = TransitionSender(replay, logger, options, self._fail, send_delay_s)
        self._failure: Exception | None = None
        self._rate = Rate()
        self._batches = Rate()

    def is_everyone_waiting(self, requests: Sequence[ActRequest]) -> bool:
        """Whether no more request can be expected before these are answered."""
        return sum(r.rows for r in requests) >= self._live.count(requests[0].is_eval)

    def act(self, requests: list[ActRequest]) -> tuple[list[Any], Arrays]:
        """Answers the requests with actions and returns the transition for `hand_on`."""
        kept = newest_only(requests)
        env_ids, obs = transitions.join(kept)
        is_eval = kept[0].is_eval
        self._live.saw(env_ids, is_eval)
        inputs = transitions.pad({k: v for k, v in obs.items() if not k.startswith("log/")}, self.batch_size)
        try:
            acts, outs = self._carries.policy(env_ids, inputs, "eval" if is_eval else "train")
        except Exception as e:
            self._fail(e)  # an agent that cannot act is the cause to report, not the environments that get no answer
            raise
        acts, outs = ({k: np.asarray(v)[: len(env_ids)] for k, v in tree.items()} for tree in (acts, outs))
        answers = iter(transitions.split_answers(kept, acts, obs["is_last"]))
        taken_over = BadRequest("the environment was taken over by a newer process")
        replies = [next(answers) if request in kept else taken_over for request in requests]
        self._rate.step(len(env_ids))
        self._batches.step(1)
        return replies, transitions.make_transition(env_ids, is_eval, obs, acts, outs)

    def hand_on(self, transition: Arrays) -> None:
        """Sends a transition to replay and logger; waits while too many are unacknowledged."""
        self._sender.send(transition)

    def drop_stale(self) -> None:
        """Forgets environments that have been silent for `episode_timeout`."""
        if stale := self._carries.drop_stale():
            log.warning("environments %s were silent for too long; their state is dropped", stale)

    def wait(self, timeout_s: float) -> None:
        """Returns after the timeout or when woken; raises what stopped the transitions, if anything did."""
        self.wake.wait(timeout_s)
        if self._failure:
            raise self._failure

    def stop(self) -> None:
        """Wakes whoever waits, here or in `hand_on`."""
        self.wake.set()
        self._sender.close()

    def drain(self, timeout_s: float) -> None:
        """Waits for the transitions that are under way to be acknowledged."""
        self._sender.drain(timeout_s)

    def stats(self) -> dict[str, float]:
        rate, batches = self._rate.result(), self._batches.result()
        return {
            "steps_per_s": rate,
            "batch": rate / batches if batches else 0.0,
            "environments": len(self._carries),
            "unacknowledged": self._sender.unacknowledged,
        }

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self.wake.set()


class LiveEnvs:
    """Counts the environments that can be expected to ask soon, apart for training and evaluation."""

    def __init__(self):
        self._seen: dict[bool, dict[int, float]] = {False: {}, True: {}}
        self._counts: dict[bool, tuple[float, int]] = {}

    def saw(self, env_ids: Sequence[int], is_eval: bool) -> None:
        self._seen[is_eval].update(dict.fromkeys(env_ids, time.monotonic()))

    def count(self, is_eval: bool) -> int:
        """Environments seen lately, counted anew a few times a second; out of reach while none is known."""
        now = time.monotonic()
        valid_until, count = self._counts.get(is_eval, (0.0, 0))
        if now >= valid_until:
            times = list(self._seen[is_eval].values())
            count = sum(now - seen < LIVE_WINDOW_S for seen in times)
            self._counts[is_eval] = (now + LIVE_WINDOW_S / 4, count)
        return count or 1_000_000  # nobody known yet: the batch fills or its time runs out


def newest_only(requests: list[ActRequest]) -> list[ActRequest]:
    """Without the requests for an environment that a later one in the list asks for too."""
    owners = {env_id: request for request in requests for env_id in request.env_ids}
    return [r for r in requests if all(owners[env_id] is r for env_id in r.env_ids)]
