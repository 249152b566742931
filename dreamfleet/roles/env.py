"""The environment worker: steps K environments and asks the actor for their next actions, one message for all."""

import contextlib
import functools
import logging
import time
import uuid
from collections.abc import Callable, Sequence

import numpy as np

from dreamfleet import lifecycle, rpc
from dreamfleet.base import waits
from dreamfleet.base.arrays import Batch
from dreamfleet.envs import EnvGroup
from dreamfleet.errors import (
    AgentError,
    BadRequest,
    Closed,
    ConfigError,
    DeadlineExceeded,
    Disconnected,
    RemoteError,
    RunOver,
)
from dreamfleet.metrics import Rate
from dreamfleet.options import Args, read_args
from dreamfleet.roles.hello import describe_spaces, refused
from dreamfleet.roles.joining import Patience, find_patience
from dreamfleet.roles.periodic import StatsSender, prefixed
from dreamfleet.roles.protocol import ACT, ACT_MANY, ENV_ID, IS_EVAL, ActSession
from dreamfleet.roles.wiring import Caller, connect, load_factory

log = logging.getLogger("dreamfleet.env")

RETRY_S, RETRY_MAX_S = 0.1, 5.0  # pause before environments start over again


@lifecycle.stopped_by_signals()
def parallel_env(make_env: bytes | Callable, envid: int, args: Args, is_eval: bool = False) -> None:
    """Runs one environment until the process is asked to stop."""
    env_worker(make_env, [envid], args, is_eval)


def env_worker(make_env: bytes | Callable, env_ids: Sequence[int], args: Args, is_eval: bool = False) -> None:
    """Runs several environments in lock-step until the process is asked to stop."""
    options = read_args(args)
    name = f"env{env_ids[0]}"
    envs = EnvGroup(load_factory(make_env), env_ids, options.env_timeout)
    facts = functools.partial(
        dict,
        envs=tuple(map(int, env_ids)),
        is_eval=is_eval,
        obs_space=describe_spaces(envs.obs_space),
        act_space=describe_spaces(envs.act_space, has_bounds=True),
    )
    actor = connect(options, "actor", name, me="env", facts=facts, ends=True, max_inflight=1, threaded=False)
    worker = EnvWorker(envs, env_ids, is_eval, actor, options.act_timeout, find_patience(options))
    reports = StatsSender(options, name, "env", is_on=0 in env_ids)  # one worker speaks for all
    with (
        lifecycle.on_stop(actor.close),
        contextlib.closing(reports),
        contextlib.closing(worker),
        contextlib.suppress(Closed),  # asked to stop while waiting for the actor
    ):
        lifecycle.show_figures(worker.figures)
        lifecycle.set_state("running")
        try:
            worker.wait_for_actor()
            while not lifecycle.stopping():
                worker.step()
                lifecycle.beat()
                if reports.is_due():
                    reports.send(worker.stats())
        except RunOver as over:
            if options.run_id:
                lifecycle.wait_stop()  # the supervisor of the run stops everybody in order
            else:
                log.info("%s: stopping", over)


class EnvWorker:
    """Steps its environments with the actions of the last answer; a lost answer starts new episodes."""

    def __init__(
        self,
        envs: EnvGroup,
        env_ids: Sequence[int],
        is_eval: bool,
        actor: Caller,
        act_timeout_s: float,
        patience: Patience = Patience(),
    ):
        self._envs = envs
        self._actor = actor
        self._patience = patience
        self._timeout_s = act_timeout_s
        self._is_single = len(env_ids) == 1
        self._must_order, self._is_in_order = False, False
        # Tells the actor which of two processes with the same environment is the newer one.
        self._meta = ActSession(actor.session or uuid.uuid4().hex).to_meta()
        if self._is_single:
            self._env_ids, self._is_eval = int(env_ids[0]), is_eval
        else:
            self._env_ids, self._is_eval = np.array(env_ids, np.int64), np.full(len(env_ids), is_eval)
        self._request = self._prepare()
        self._acts = self._envs.reset_actions()
        self._act_keys = frozenset(self._acts)
        self._rate = Rate()
        self._asking_s, self._shown = 0.0, time.monotonic()  # since the time of the last `stats`
        self._lost = self._lost_in_a_row = 0
        self._steps = 0

    def wait_for_actor(self) -> None:
        """Returns when there is a connection, or at a stop; raises why there is none, or will be none."""
        if self._patience.wait(self._actor):
            self._check_actor()

    def _check_actor(self) -> None:
        if self._actor.is_plain and not self._is_single:
            reason = f"cannot work with this policy server, a portal program that knows no {ACT_MANY}"
            raise ConfigError("run.envs_per_worker", np.size(self._env_ids), reason, "set it to 1")
        self._must_order = bool(self._actor.is_plain) and not self._is_in_order

    def step(self) -> None:
        """One step of every environment and the exchange with the actor that follows it."""
        obs = self._envs.step(self._acts)
        if self._must_order:
            obs = self._put_in_order(obs)
        self._rate.step(len(obs["reward"]))
        self._steps += len(obs["reward"])
        asked = time.monotonic()
        try:
            acts = self._request.ask(self._timeout_s)
        except (Disconnected, DeadlineExceeded, RemoteError) as e:
            self._start_over(e)
            return
        except BadRequest as e:
            raise refused(e) from e
        finally:
            self._asking_s += time.monotonic() - asked
        if not acts.keys() >= self._act_keys:
            missing = sorted(self._act_keys - acts.keys())
            raise AgentError(f"the policy's actions have no {missing}, which the action space has; got {sorted(acts)}")
        self._acts = {k: np.asarray(v)[None] for k, v in acts.items()} if self._is_single else acts
        self._lost_in_a_row = 0

    def _start_over(self, reason: Exception) -> None:
        """Begins new episodes after an answer was lost; when one after the other is, more and more slowly."""
        self._request = self._prepare()  # the last one may still be on its way
        self._acts = self._envs.reset_actions()
        self.wait_for_actor()
        if not lifecycle.stopping():
            log.warning("%s; starting new episodes", reason)
        self._lost += 1
        self._lost_in_a_row += 1
        if self._lost_in_a_row > 1:
            with lifecycle.waiting(waits.ACTOR_RECOVERY()):
                lifecycle.wait_stop(min(RETRY_S * 2.0 ** min(self._lost_in_a_row, 60), RETRY_MAX_S))

    def stats(self) -> dict[str, float]:
        return {
            "steps_per_s": self._rate.result(),
            "rebuilds": self._envs.rebuilds,
            "lost_answers": self._lost,
            **self._shares(),
            **prefixed("actor", self._actor.stats()),
        }

    def _shares(self) -> dict[str, float]:
        """How much of the time since the last call went into steps, and how much into the wait for actions."""
        seconds, asking_s = time.monotonic() - self._shown, self._asking_s
        self._asking_s, self._shown = 0.0, time.monotonic()
        return {"time/step": 1.0 - asking_s / seconds, "time/act": asking_s / seconds} if seconds else {}

    def figures(self) -> lifecycle.Figures:
        """For whoever watches this worker alone."""
        envs = int(np.size(self._env_ids))
        return {"steps": self._steps, "envs": envs, "rebuilds": self._envs.rebuilds, "lost_answers": self._lost}

    def close(self) -> None:
        self._actor.close()
        self._envs.close()

    def _put_in_order(self, obs: Batch) -> Batch:
        """Prepares the request again, with the observation in the order in which the environment gives it.

        A policy server of others joins the messages of several environments by the order of their keys.
        """
        self._must_order, self._is_in_order = False, True
        self._request = self._prepare()
        buffers = self._envs.buffers
        for key, value in obs.items():
            buffers[key][:] = value
        return buffers

    def _prepare(self) -> rpc.Prepared:
        """The request for actions, in whose arrays the environments leave their observations."""
        buffers = self._envs.make_buffers()
        rows = {k: v.reshape(v.shape[1:]) if self._is_single else v for k, v in buffers.items()}
        data = {ENV_ID: self._env_ids, **rows, IS_EVAL: self._is_eval}
        request = self._actor.prepare(ACT if self._is_single else ACT_MANY, data, self._meta)
        self._envs.use_buffers({k: request.data[k][None] if self._is_single else request.data[k] for k in buffers})
        return request
