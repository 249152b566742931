"""One update of the agent as a function: parameters, optimiser and a batch in, the next ones and results out."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from dreamfleet.agent.dreamer.model import Model
from dreamfleet.agent.dreamer.networks.heads import TwoHotHead
from dreamfleet.agent.dreamer.networks.rssm import RSSM, LatentState
from dreamfleet.agent.dreamer.objective import Norms, make_norms, objective
from dreamfleet.agent.dreamer.optimiser import make_optimiser, make_schedule
from dreamfleet.agent.dreamer.spaces import Arrays
from dreamfleet.options.dreamer import DreamerOptions

# What replay stores of the recurrent state with each step: half floats, and class numbers instead of one-hot vectors.
DETER, STOCH = "dyn/deter", "dyn/stoch"


class Learning(eqx.Module):
    """What is trained besides the model's own parameters, and is not needed to act."""

    slow_critic: TwoHotHead
    norms: Norms
    optimiser: Any
    updates: jax.Array
    seed: jax.Array  # the data of a random key, which checkpoints can hold


class TrainCarry(eqx.Module):
    """Where a sequence stands after a chunk: the state and action of its last step."""

    state: LatentState
    actions: Arrays


def make_chain(options: DreamerOptions) -> Any:
    return make_optimiser(
        options.learning_rate, options.warmup, options.clip, options.beta1, options.beta2, options.eps, options.decay
    )


def make_learning(model: Model, key: jax.Array, options: DreamerOptions) -> Learning:
    """The state before the first update."""
    slow_critic = jax.tree.map(jnp.copy, model.critic)
    count = jnp.zeros((), jnp.int32)
    return Learning(slow_critic, make_norms(options), make_chain(options).init(model), count, jax.random.key_data(key))


def initial_carry(model: Model, batch_size: int) -> TrainCarry:
    """The carry of sequences that begin."""
    actions = {f.key: jnp.zeros((batch_size, *f.shape), f.dtype) for f in model.actor.fields}
    return TrainCarry(model.rssm.initial((batch_size,)), actions)


def last_carry(model: Model, states: LatentState, data: Mapping[str, jax.Array]) -> TrainCarry:
    """The carry after the last step of sequences (B, T)."""
    actions = {f.key: data[f.key][:, -1] for f in model.actor.fields}
    return TrainCarry(jax.tree.map(lambda x: x[:, -1], states), actions)


def update(
    model: Model,
    learning: Learning,
    carry: TrainCarry,
    data: Mapping[str, jax.Array],
    options: DreamerOptions,
    context: int,
    has_priority: bool,
) -> tuple[Model, Learning, TrainCarry, Arrays, Arrays]:
    """The next model, learning state and carry; what replay should store of each step; and metrics."""
    key, step_key = jax.random.split(jax.random.wrap_key_data(learning.seed))
    start, obs, actions = split_context(model, carry, data, context)
    gradient = jax.value_and_grad(objective, has_aux=True)
    (total, outcome), gradients = gradient(
        model, learning.slow_critic, learning.norms, start, obs, actions, step_key, options
    )
    changes, optimiser = make_chain(options).update(gradients, learning.optimiser, model)
    model = jax.tree.map(jnp.add, model, changes)
    slow_critic = jax.tree.map(
        lambda slow, fast: (1.0 - options.slow_rate) * slow + options.slow_rate * fast,
        learning.slow_critic,
        model.critic,
    )
    learning = Learning(slow_critic, outcome.norms, optimiser, learning.updates + 1, jax.random.key_data(key))
    carry = last_carry(model, outcome.states, data)
    replay = compact(model.rssm, outcome.states)
    if has_priority:
        replay["priority"] = outcome.priority
    metrics = {
        **outcome.metrics,
        "loss/total": total,
        "grad_norm": optax.tree.norm(gradients),
        "param_norm": optax.tree.norm(model),
        "learning_rate": make_schedule(options.learning_rate, options.warmup, options.decay)(learning.updates - 1),
        "updates/last": learning.updates,
    }
    return model, learning, carry, replay, metrics


def split_context(
    model: Model, carry: TrainCarry, data: Mapping[str, jax.Array], context: int
) -> tuple[LatentState, Arrays, Arrays]:
    """The starting state, the observations (B, T) and the previous actions (B, T) of a batch (B, context + T).

    The first chunk of a sequence starts from the state that replay stored with its last context step, or from the
    initial one if the steps were recorded without states; a later chunk from where the one before it ended.
    """
    obs = {key: value[:, context:] for key, value in data.items() if key not in (DETER, STOCH, "consec")}
    if not context:
        actions = {
            f.key: jnp.concatenate([carry.actions[f.key][:, None], data[f.key][:, :-1]], 1) for f in model.actor.fields
        }
        return carry.state, obs, actions
    actions = {f.key: data[f.key][:, context - 1 : -1] for f in model.actor.fields}
    if DETER in data:
        stored = expand(model.rssm, data[DETER][:, context - 1], data[STOCH][:, context - 1])
    else:
        stored = model.rssm.initial((len(data["consec"]),))
    is_start = (data["consec"][:, 0] == 0)[:, None]
    return jax.tree.map(lambda new, old: jnp.where(is_start, new, old), stored, carry.state), obs, actions


def compact(rssm: RSSM, states: LatentState) -> Arrays:
    """States in the form that replay stores."""
    stoch = states.stoch.reshape(*states.stoch.shape[:-1], rssm.stoch, rssm.classes)
    return {DETER: states.deter.astype(jnp.float16), STOCH: stoch.argmax(-1).astype(jnp.uint8)}


def state_shapes(rssm: RSSM) -> dict[str, tuple[int, ...]]:
    """The shapes of a state in that form."""
    return {DETER: (rssm.deter,), STOCH: (rssm.stoch,)}


def expand(rssm: RSSM, deter: jax.Array, stoch: jax.Array) -> LatentState:
    """The inverse of `compact`."""
    onehot = jax.nn.one_hot(stoch, rssm.classes, dtype=rssm.dtype)
    return LatentState(deter.astype(rssm.dtype), onehot.reshape(*stoch.shape[:-1], -1))
