"""The actor: batches observations, answers with the policy's actions, and only then sends the transitions on."""

import dataclasses
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dreamfleet import lifecycle, rpc
from dreamfleet.agent.contract import Agent, Batch
from dreamfleet.base import waits
from dreamfleet.base.keys import RUN_OVER, without_logs
from dreamfleet.errors import BadRequest, RunOver
from dreamfleet.metrics import Rate
from dreamfleet.options import Args, RoleOptions, read_args
from dreamfleet.roles import protocol
from dreamfleet.roles.actor.carries import make_carries
from dreamfleet.roles.actor.holders import Holders
from dreamfleet.roles.actor.leases import FILE as LEASES
from dreamfleet.roles.actor.leases import Leases
from dreamfleet.roles.actor.machines import Machines
from dreamfleet.roles.actor.outputs import OutputChecker
from dreamfleet.roles.actor.requests import ActRequest, RequestParser, join, newest_only, pad, split_answers
from dreamfleet.roles.actor.sender import DELAY_S, TransitionSender
from dreamfleet.roles.hello import (
    Reception,
    RunIdentity,
    check_spaces,
    describe_spaces,
    make_hello,
    owner_of,
    stored_counts,
)
from dreamfleet.roles.periodic import StatsSender, prefixed
from dreamfleet.roles.protocol import Hello
from dreamfleet.roles.tally import Tally, shared_tally
from dreamfleet.roles.transitions import make_transition
from dreamfleet.roles.wiring import Handler, Peers, connect, serve, unless_failed

log = logging.getLogger("dreamfleet.actor")

DRAIN_S = 2.0
DISMISS_S = 10.0  # for workers elsewhere to ask once more, and hear that the run is complete
COMPLETE = "the run is complete"
FLAGS = ("is_first", "is_last", "is_terminal", "reward")  # which an agent need not name among its observations
RESETS = (protocol.RESET,)
UNKNOWN = 1_000_000  # environments, out of reach
LIVE_WINDOW_S = 1.0  # an environment that asked within this time is expected to ask again


def parallel_actor(agent: Agent, barrier: threading.Barrier, args: Args) -> None:
    """Serves actions from the moment the learner has restored the agent until the process is asked to stop."""
    options = read_args(args)
    stored = stored_counts(options)
    actor: Actor | None = None

    def facts() -> dict:
        step = max(stored.inserts, actor.step if actor else 0)
        return {"counts": dataclasses.replace(stored, inserts=step)}

    with unless_failed(barrier):
        replay = connect(options, "replay", "actor", me="actor", facts=facts)
        logger = connect(options, "logger", "actor", me="actor")
        reports = StatsSender(options, "actor", "actor")
        actor = Actor(agent, Peers(replay, logger), options, tally=shared_tally(barrier, options))
        server, set_batch = _serve_policy(actor, options)
    with lifecycle.waiting(waits.RESTORE()):
        barrier.wait()  # no data before the learner has restored
    with lifecycle.on_stop(actor.stop), server:
        log.info("policy server ready, batch size %d", actor.batch_size)
        while not lifecycle.wait_stop(options.log_every):
            actor.drop_stale()
            if actor.grow_batch():
                set_batch(actor.batch_size)
            connections = {**prefixed("replay", replay.stats()), **prefixed("logger", logger.stats())}
            reports.send({**actor.stats(), **server.stats(), **connections})
        if lifecycle.is_complete():
            actor.dismiss(DISMISS_S)
    actor.drain(DRAIN_S)
    for client in (replay, logger, reports):
        client.close()
    lifecycle.raise_failure()


def _serve_policy(actor: "Actor", options: RoleOptions) -> tuple[rpc.Server, Callable[[int], None]]:
    """The server, and what changes its batch size."""
    hello = make_hello(options, "actor", obs_space=actor.obs_space, act_space=actor.act_space)
    server = serve(options, "actor", actor.methods(), Reception(options, lambda: hello, actor.check_hello))
    set_batch = server.bind_batched(
        actor.parsers(),
        actor.act,
        post=actor.send,
        batch=actor.batch_size,
        max_wait_ms=options.actor_wait_ms,
        workers=options.actor_threads if options.actor_threads > 1 else 0,
        is_full=actor.is_everyone_waiting,
        post_backlog=options.backlog,
        takes_meta=True,
    )
    return server, set_batch


class Actor:
    """The policy behind the server: requests in, answers and transitions out."""

    def __init__(
        self,
        agent: Agent,
        peers: Peers,
        options: RoleOptions,
        send_delay_s: float = DELAY_S,
        tally: Tally | None = None,
    ):
        self.batch_size = options.inference_batch
        self.obs_space = describe_spaces(getattr(agent, "obs_space", None))
        self.act_space = describe_spaces(getattr(agent, "act_space", None), has_bounds=True)
        self._live = LiveEnvs()
        self._options, self._owner = options, owner_of(options)
        own_envs = 0 if options.remote_envs else options.envs
        room = options.most_envs - own_envs if options.most_envs else None
        self._holders = Holders(self._owner, options.episode_timeout, self._live.age_s, room)
        self._leases = Leases(
            Path(options.logdir) / LEASES,
            own_envs + (0 if options.remote_envs else options.eval_envs),
            options.episode_timeout,
            self._holders.is_taken,
            self._live.age_s,
        )
        self._machines = Machines(options.logdir, RunIdentity(options).run)
        self._parser = RequestParser(getattr(agent, "obs_space", None), self._holders)
        self._log = rpc.LimitedLog("actor")
        self._is_over = False
        self._dismissed: set[int] = set()  # environments that have heard it
        self._told = threading.Condition()
        if options.actor_batch > self.batch_size:
            log.warning(
                "actor_batch=%d exceeds the number of environments; using %d", options.actor_batch, self.batch_size
            )
        num_envs = max(options.envs + options.eval_envs, self.batch_size)
        self._carries = make_carries(
            agent, options.episode_timeout, 2 * num_envs if options.remote_envs else num_envs, self.batch_size
        )
        self._modes: set[str] = set()  # that the agent has acted in
        self._outputs = OutputChecker(getattr(agent, "act_space", None))
        self._sender = TransitionSender(*peers, options, send_delay_s, tally)
        self._rate = Rate()
        self._batches = Rate()

    def methods(self) -> dict[str, Handler]:
        """What the server answers to one by one, as functions of data and metadata."""
        return {protocol.LEASE: self._leases.give, protocol.STATUS: self._machines.take}

    def parsers(self) -> dict[str, Callable[[Any, dict], ActRequest]]:
        """What makes a request of data and metadata, by method."""
        return {protocol.ACT: self._parser.parse_one, protocol.ACT_MANY: self._parser.parse_many}

    @property
    def step(self) -> int:
        return self._sender.step

    def check_hello(self, theirs: Hello) -> None:
        """Lets a worker in whose environments are those of the run, and are not stepped by somebody else."""
        if self._is_over:
            raise RunOver(COMPLETE)
        if theirs.role != "env":
            raise BadRequest(f"the policy server is for environments, not for the {theirs.role}")
        if not theirs.envs:
            return  # it asks for numbers first, and presents itself again with them
        task = self._options.task
        observed = without_logs(theirs.obs_space)
        if self.obs_space:
            check_spaces("observations", _without(FLAGS, observed), _without(FLAGS, self.obs_space), task)
        else:
            self._parser.expect(theirs.is_eval, observed, task)
        if self.act_space:
            check_spaces("actions", _without(RESETS, theirs.act_space), _without(RESETS, self.act_space), task)
        if theirs.task != task:
            what = f"environments {_shown(theirs.envs)} on {theirs.host} have task {theirs.task}, the run {task}"
            self._log.warning("task", what)
        self._holders.present(theirs)

    def dismiss(self, timeout_s: float) -> None:
        """Answers every request with the end of the run, until workers that others started have heard it."""
        others = self._holders.others_than(self._owner)
        # Who has not asked for that long will not ask in time.
        awaited = {i for i, worker in others.items() if self._live.age_s(i, worker.is_eval) < timeout_s}
        with self._told:
            self._is_over = True
            with lifecycle.waiting(waits.ENV_FAREWELL()):
                self._told.wait_for(lambda: awaited <= self._dismissed, timeout_s)

    def _dismiss(self, requests: list[ActRequest]) -> tuple[list[Any], None]:
        with self._told:
            self._dismissed.update(env_id for request in requests for env_id in request.env_ids)
            self._told.notify_all()
        return [RunOver(COMPLETE)] * len(requests), None

    def is_everyone_waiting(self, requests: Sequence[ActRequest]) -> bool:
        """Whether no more request can be expected before these are answered."""
        return sum([r.rows for r in requests]) >= self._live.count(requests[0].is_eval)

    def grow_batch(self) -> bool:
        """Doubles the inference batch if twice as many environments have joined as it was made for."""
        live = self._live.count(is_eval=False)
        if self._options.actor_batch > 0 or live == UNKNOWN or live < 4 * self.batch_size:
            return False
        self.batch_size *= 2
        log.info("the inference batch grows to %d for %d environments", self.batch_size, live)
        return True

    def act(self, requests: list[ActRequest]) -> tuple[list[Any], Batch | None]:
        """Answers the requests with actions and returns the transition for `send`."""
        if self._is_over:
            return self._dismiss(requests)
        try:
            return self._act(requests)
        except Exception as error:
            lifecycle.fail(error)  # the cause to report, rather than the environments that get no answer
            raise

    def _act(self, requests: list[ActRequest]) -> tuple[list[Any], Batch]:
        refusals: dict[ActRequest, Exception] = {}
        kept = self._keep(requests, refusals)
        if not kept:
            return [refusals[request] for request in requests], {}
        env_ids, obs = join(kept)
        is_eval = kept[0].is_eval
        self._live.mark_seen(env_ids, is_eval)
        if RUN_OVER in obs and not is_eval and obs[RUN_OVER].any():
            lifecycle.note_complete()
        inputs = pad(without_logs(obs), self.batch_size)
        mode = self._options.eval_policy if is_eval else "train"
        acts, outs = self._outputs.check(mode, *self._policy(env_ids, inputs, mode), len(inputs["is_first"]))
        if len(inputs["is_first"]) > len(env_ids):  # without the padding
            acts, outs = ({k: v[: len(env_ids)] for k, v in tree.items()} for tree in (acts, outs))
        answers = iter(split_answers(kept, acts, obs["is_last"]))
        replies = [refusals[request] if request in refusals else next(answers) for request in requests]
        self._rate.step(len(env_ids))
        self._batches.step(1)
        return replies, make_transition(env_ids, is_eval, obs, acts, outs)

    def _policy(self, env_ids: Sequence[int], inputs: Batch, mode: str) -> tuple[Batch, Batch]:
        """The agent's actions; the first ones of each mode may take long, as most agents compile them."""
        if mode in self._modes:
            return self._carries.policy(env_ids, inputs, mode)
        with lifecycle.waiting(waits.FIRST_POLICY()):
            answer = self._carries.policy(env_ids, inputs, mode)
        self._modes.add(mode)
        return answer

    def _keep(self, requests: list[ActRequest], refusals: dict[ActRequest, Exception]) -> list[ActRequest]:
        """The requests that get actions; notes of the others why they do not."""
        newest = newest_only(requests)
        if len(newest) < len(requests):
            taken_over = BadRequest("the environment was taken over by a newer process")
            refusals |= {request: taken_over for request in requests if request not in newest}
        if self._carries.make_room([env_id for request in newest for env_id in request.env_ids]):
            return newest
        surplus = [request for request in newest if not self._carries.make_room(request.env_ids)]
        for request in surplus:
            others, most = len(self._carries), self._carries.limit
            reason = f"the agent acts in at most {most} environments, and there are {others} already"
            refusals[request] = BadRequest(f"environments {request.env_ids} are too many: {reason}")
        return [request for request in newest if request not in refusals]

    def send(self, transition: Batch | None) -> None:
        """Sends a transition to replay and logger; waits while too many are unacknowledged."""
        if not transition:
            return  # all requests of the batch were refused
        try:
            self._sender.send(transition)
        except Exception as error:
            lifecycle.fail(error)  # the environments were answered: nobody else hears of it
            raise

    def drop_stale(self) -> None:
        """Forgets environments that have been silent for `episode_timeout`."""
        if stale := self._carries.drop_stale():
            self._live.forget(stale)
            log.warning("environments %s timed out; their recurrent state is dropped", stale)

    def stop(self) -> None:
        """Wakes whoever waits in `send`."""
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


class LiveEnvs:
    """Counts the environments that can be expected to ask soon, apart for training and evaluation."""

    def __init__(self):
        self._seen: dict[bool, dict[int, float]] = {False: {}, True: {}}
        self._counts: dict[bool, tuple[float, int]] = {}

    def mark_seen(self, env_ids: Sequence[int], is_eval: bool) -> None:
        self._seen[is_eval].update(dict.fromkeys(env_ids, time.monotonic()))

    def forget(self, env_ids: Sequence[int]) -> None:
        for seen in self._seen.values():
            for env_id in env_ids:
                seen.pop(env_id, None)

    def age_s(self, env_id: int, is_eval: bool) -> float:
        """How long ago an environment asked; infinity for one that never did."""
        return time.monotonic() - self._seen[is_eval].get(env_id, -math.inf)

    def count(self, is_eval: bool) -> int:
        """Environments seen lately, counted a few times a second; out of reach while none is known."""
        now = time.monotonic()
        valid_until, count = self._counts.get(is_eval, (0.0, 0))
        if now >= valid_until:
            times = list(self._seen[is_eval].values())
            count = sum(now - seen < LIVE_WINDOW_S for seen in times)
            self._counts[is_eval] = (now + LIVE_WINDOW_S / 4, count)
        return count or UNKNOWN  # nobody known yet: the batch fills or its time runs out


def _without(names: Sequence[str], spaces: Mapping[str, str]) -> dict[str, str]:
    return {key: space for key, space in spaces.items() if key not in names}


def _shown(env_ids: Sequence[int]) -> str:
    first, *rest = env_ids or (0,)
    return f"{first} to {rest[-1]}" if rest else str(first)
