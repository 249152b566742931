"""DreamerV3 as an agent of the fleet: acts from one thread while another trains, on the same parameters.

The actor reads one reference to a whole set of parameters; the learner replaces it when an update is finished. Nothing
that the actor may be reading is ever donated.
"""

import functools
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import elements
import jax
import numpy as np

from dreamfleet import lifecycle
from dreamfleet.agent.contract import Batch, PolicyProgram, ReplicaPlace
from dreamfleet.agent.dreamer import acting, devices, exporting, learning, replicas, reporting
from dreamfleet.agent.dreamer.guard import check_finite
from dreamfleet.agent.dreamer.model import Model
from dreamfleet.agent.dreamer.names import (
    count_parameters,
    few,
    find_unmatched,
    named_leaves,
    pick_leaves,
    replace_leaves,
)
from dreamfleet.agent.dreamer.spaces import NOT_OBSERVED, action_fields
from dreamfleet.agent.dreamer.tuning import SHIPPED, Tuning
from dreamfleet.base import waits
from dreamfleet.errors import ConfigError
from dreamfleet.options import AgentOptions

log = logging.getLogger("dreamfleet.agent")


class Update(NamedTuple):
    """An update that may still be computing."""

    model: Model
    replay: dict[str, jax.Array]
    metrics: dict[str, jax.Array]
    data: Mapping[str, Any]


class Dreamer:
    """The agent methods over compiled functions; `train` returns what the update before computed."""

    reduces_by_key = True  # of metrics: `updates/last`, and of the open-loop predictions the last

    def __init__(
        self,
        obs_space: dict[str, elements.Space],
        act_space: dict[str, elements.Space],
        options: AgentOptions,
        tuning: Tuning = SHIPPED,
    ):
        devices.configure(options.jax)
        self.obs_space, self.act_space = obs_space, act_space
        self._options = options.dreamer
        self._context = options.replay_context
        self._has_priority = options.replay.priority > 0
        self._logdir = Path(options.logdir)
        self._placement = devices.Placement(options.jax, tuning)
        if options.batch_size % self._placement.devices:
            reason = f"cannot be shared by {self._placement.devices} devices"
            raise ConfigError("batch_size", options.batch_size, reason, "choose a multiple, or set jax.train_devices")
        self._policy_keys = ["is_first", *(key for key in obs_space if key not in NOT_OBSERVED)]
        self._train_keys = [*obs_space, *(field.key for field in action_fields(act_space)), "consec"]
        self._make_state(obs_space, act_space, options, tuning)
        self._state_shapes = learning.state_shapes(self._model.rssm)
        self._policy_seed = options.seed + 1
        self.seed_policy(0)
        self._compile()
        self._slots: acting.PolicyCarry | None = None
        self._pending: Update | None = None
        self._publish(self._model)
        for part, count in count_parameters(self._model).items():
            log.info("%-8s %12s parameters", part, f"{count:,}")

    def init_policy(self, batch_size: int) -> dict[str, Any]:
        carry = acting.initial_policy_carry(acting.acting_part(self._model), batch_size)
        return jax.tree.map(np.asarray, vars(carry))

    def policy(self, carry: dict[str, Any], obs: Batch, mode: str = "train") -> tuple[dict[str, Any], Batch, Batch]:
        inputs = tuple(obs[key] for key in self._policy_keys)
        outputs = self._act(self._acting, carry, inputs, self._next_noise(), self._is_greedy(mode))
        return jax.tree.map(np.asarray, outputs)

    def init_slots(self, num_slots: int) -> None:
        carry = acting.initial_policy_carry(acting.acting_part(self._model), num_slots + 1)
        self._slots = jax.device_put(carry, self._placement.policy_device)

    def grow_slots(self, num_slots: int) -> None:
        old = self._slots
        self.init_slots(num_slots)
        # All but the scratch slot, which comes last.
        self._slots = jax.tree.map(lambda new, kept: new.at[: len(kept) - 1].set(kept[:-1]), self._slots, old)

    def policy_slots(self, slots: np.ndarray, is_new: np.ndarray, obs: Batch, mode: str) -> tuple[Batch, Batch]:
        inputs = tuple(obs[key] for key in self._policy_keys)
        self._slots, acts, outs = self._act_in_slots(
            self._acting, self._slots, slots, is_new, inputs, self._next_noise(), self._is_greedy(mode)
        )
        return {k: np.asarray(v) for k, v in acts.items()}, {k: np.asarray(v) for k, v in outs.items()}

    def init_train(self, batch_size: int) -> learning.TrainCarry:
        return self._placement.put_batch(learning.initial_carry(self._model, batch_size))

    def train(self, carry: learning.TrainCarry, data: Batch) -> tuple[learning.TrainCarry, dict, dict]:
        with lifecycle.waiting(waits.TRAIN_STEP()):  # which includes its compilation
            self._model, self._learning, carry, replay, metrics = self._update(
                self._model, self._learning, carry, self._inputs(data)
            )
            done, self._pending = self._pending, Update(self._model, replay, metrics, data)
            return (carry, *self._collect(done)) if done else (carry, {}, {})

    def init_report(self, batch_size: int) -> learning.TrainCarry:
        return self.init_train(batch_size)

    def report(self, carry: learning.TrainCarry, data: Batch) -> tuple[learning.TrainCarry, dict[str, np.ndarray]]:
        with lifecycle.waiting(waits.REPORT()):
            given = self._placement.local((self._model, self._learning, carry, self._inputs(data)))
            carry, metrics = self._report(*given)
            return carry, jax.device_get(metrics)

    def stream(self, source: Iterable[Batch]) -> Iterator[dict[str, Any]]:
        """Batches whose arrays are on their way to the devices; step ids are not needed there."""
        for batch in source:
            yield {**batch, **self._placement.put_batch(self._inputs(batch))}

    def save(self) -> dict[str, np.ndarray]:
        """All parameters and statistics by name, as copies: the next update reuses their memory."""
        if self._pending:
            self._check_finite(jax.device_get(self._pending.metrics), self._pending.data)
        return {name: np.array(leaf) for name, leaf in self._named().items()}

    def load(self, data: dict[str, np.ndarray], regex: str | None = None) -> None:
        """Takes over what was saved, on whatever devices; with a regex only the names that it is found in."""
        values = pick_leaves(data, self._named(), regex)
        log.info("loaded %d of %d arrays", len(values), len(self._named()))
        missing, unused = find_unmatched(data, self._named(), regex) if regex is not None else ([], [])
        if missing:
            log.warning("the checkpoint lacks %d arrays, which stay as initialised: %s", len(missing), few(missing))
        if unused:
            log.warning("%d arrays of the checkpoint are not used: %s", len(unused), few(unused))
        self._set_state(replace_leaves({"model": self._model, "learning": self._learning}, values))

    @classmethod
    def join_replicas(cls, place: ReplicaPlace, options: AgentOptions) -> None:
        """Makes the agent of this process one of several that are trained as one."""
        devices.configure(options.jax)
        replicas.join(place, options.jax)

    def share_state(self, numbers: tuple[float, ...]) -> tuple[float, ...]:
        """Takes over the state of replica 0; returns its numbers."""
        exact = np.asarray(numbers, np.float64).view(np.int32)  # JAX has no numbers of this size
        state, exact = replicas.share(({"model": self._model, "learning": self._learning}, exact))
        self._set_state(state)
        return tuple(exact.view(np.float64).tolist())

    def seed_policy(self, number: int) -> None:
        """Draws the policy's noise from here on from the sequence of this number; 0 is that of the exported policy."""
        key = jax.random.key(self._policy_seed)
        key = jax.random.fold_in(key, number) if number else key
        self._policy_key = jax.device_put(jax.random.key_data(key), self._placement.policy_device)
        self._calls = itertools.count()

    def export_policy(self, mode: str = "eval") -> PolicyProgram:
        """The policy as a program that runs without this package and draws the same actions."""
        part = acting.acting_part(self._model)
        return exporting.export_policy(
            part, self.obs_space, self._policy_keys, self._policy_seed, self._is_greedy(mode)
        )

    def prepare_update(self, carry: learning.TrainCarry, data: Batch) -> None:
        """Compiles the update for the batches of this process and of the others."""
        with lifecycle.waiting(waits.TRAIN_STEP()):
            self._update = self._update.lower(self._model, self._learning, carry, self._inputs(data)).compile()

    def _make_state(self, obs_space: dict, act_space: dict, options: AgentOptions, tuning: Tuning) -> None:
        dtype = devices.compute_dtype(options.jax.precision, self._placement.platform)

        def make():
            model_key, key = jax.random.split(jax.random.key(options.seed))
            model = Model(model_key, obs_space, act_space, self._options, dtype, tuning)
            return model, learning.make_learning(model, key, self._options)

        self._shardings = self._placement.params(jax.eval_shape(make))
        quickly = jax.jit(make, out_shardings=self._shardings, compiler_options=devices.quick_compiler_options())
        self._model, self._learning = quickly()

    def _set_state(self, state: dict[str, Any]) -> None:
        state = self._placement.put_params(jax.tree.map(np.asarray, state))
        self._model, self._learning, self._pending = state["model"], state["learning"], None
        self._publish(self._model)

    def _compile(self) -> None:
        """Wraps the functions; they are compiled when they are first called."""
        jit = functools.partial(jax.jit, compiler_options=devices.compiler_options())
        batch, results = self._placement.batch, self._placement.results
        self._update: Any = jit(
            functools.partial(
                learning.update, options=self._options, context=self._context, has_priority=self._has_priority
            ),
            donate_argnums=(1, 2),
            out_shardings=(*self._shardings, batch, *results),
        )
        report = functools.partial(reporting.report, options=self._options, context=self._context)
        self._report = jit(report, out_shardings=(self._placement.local_batch, None))
        structure = jax.tree.structure(acting.acting_part(self._model))

        def unpack(leaves, obs, noise):
            policy_key, call = noise
            key = jax.random.fold_in(jax.random.wrap_key_data(policy_key), call)
            return jax.tree.unflatten(structure, leaves), dict(zip(self._policy_keys, obs, strict=True)), key

        def act(leaves, carry, obs, noise, is_greedy):
            part, obs, key = unpack(leaves, obs, noise)
            carry = acting.PolicyCarry(**carry)
            carry, acts, outs = acting.act(part, carry, obs, obs["is_first"], key, is_greedy)
            return vars(carry), acts, outs

        def act_in_slots(leaves, slots, index, is_new, obs, noise, is_greedy):
            part, obs, key = unpack(leaves, obs, noise)
            return acting.act_in_slots(part, slots, index, is_new, obs, key, is_greedy)

        self._act = jit(act, static_argnums=4)
        self._act_in_slots = jit(act_in_slots, static_argnums=6, donate_argnums=1)

    def _next_noise(self) -> tuple[jax.Array, int]:
        return self._policy_key, next(self._calls)

    def _collect(self, done: Update) -> tuple[dict, dict]:
        """Waits for an update, makes its parameters those that act, and returns what it computed."""
        metrics = jax.device_get(done.metrics)
        self._check_finite(metrics, done.data)
        self._publish(done.model)
        kept = done.replay.keys() - (() if self._has_states(done.data) else self._state_shapes.keys())
        if not kept:
            return {}, metrics
        step_ids = np.asarray(done.data["stepid"])[:, self._context :]
        refreshed = self._placement.local({key: done.replay[key] for key in kept})
        return {"replay": {"stepid": step_ids, **jax.device_get(refreshed)}}, metrics

    def _check_finite(self, metrics: dict[str, Any], data: Mapping[str, Any]) -> None:
        check_finite(metrics, self._placement.local(data), self._logdir)

    def _publish(self, model: Model) -> None:
        # A flat tuple: half the cost of a tree in each call.
        leaves = jax.tree.leaves(self._placement.local(acting.acting_part(model)))
        self._acting = tuple(jax.device_put(leaves, self._placement.policy_device))

    def _inputs(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """What updates and reports need of a batch."""
        has_states = self._context and self._has_states(data)
        return {key: data[key] for key in [*self._train_keys, *(self._state_shapes if has_states else ())]}

    def _has_states(self, data: Mapping[str, Any]) -> bool:
        """Whether replay stores states of ours; steps that others recorded have none, or those of another size."""
        return all(key in data and data[key].shape[2:] == shape for key, shape in self._state_shapes.items())

    def _named(self) -> dict[str, Any]:
        return named_leaves({"model": self._model, "learning": self._learning})

    def _is_greedy(self, mode: str) -> bool:
        return mode == "eval" and self._options.greedy_eval
