"""What a report computes from a batch: losses, open-loop predictions as videos and errors, gradient norms by option."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import optax

from dreamfleet.agent.dreamer.learning import Learning, TrainCarry, last_carry, split_context
from dreamfleet.agent.dreamer.model import Model
from dreamfleet.agent.dreamer.networks.rssm import LatentState
from dreamfleet.agent.dreamer.objective import objective
from dreamfleet.agent.dreamer.spaces import Arrays, flatten
from dreamfleet.options.dreamer import DreamerOptions

VIDEOS = 6  # sequences shown side by side
SIGNALS = 16  # elements of a vector that are shown


def report(
    model: Model, learning: Learning, carry: TrainCarry, data: Arrays, options: DreamerOptions, context: int
) -> tuple[TrainCarry, Arrays]:
    """The next carry and the metrics of a batch; nothing is learned from it."""
    loss_key, open_key = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(learning.seed), 1))
    start, obs, actions = split_context(model, carry, data, context)
    inputs = (learning.slow_critic, learning.norms, start, obs, actions, loss_key, options)
    total, outcome = objective(model, *inputs)
    metrics = {**outcome.metrics, "loss/total": total}
    if options.grad_norms:
        metrics |= gradient_norms(model, *inputs)
    start, obs, actions = jax.tree.map(lambda x: x[:VIDEOS], (start, obs, actions))
    metrics |= open_loop(model, start, obs, actions, open_key)
    return last_carry(model, outcome.states, data), metrics


def gradient_norms(model: Model, *inputs) -> Arrays:
    """The norm of the gradient that each loss sends into each network."""

    def losses(model: Model) -> Arrays:
        return objective(model, *inputs)[1].losses

    jacobian = jax.jacrev(losses)(model)
    parts = model.__dataclass_fields__
    return {
        f"grad_norm/{loss}/{part}": optax.tree.norm(getattr(jacobian[loss], part))
        for loss in jacobian
        for part in parts
    }


def open_loop(
    model: Model, start: LatentState, obs: Mapping[str, jax.Array], actions: Arrays, key: jax.Array
) -> Arrays:
    """Predictions that see the first half of each sequence and only the actions of the second.

    For images a video (T, 3 H, B W, C) of truth, prediction and error, for vectors truth and prediction; for all
    observations the mean error of the second half.
    """
    rssm, (B, T) = model.rssm, obs["is_first"].shape
    half = max(1, T // 2)
    observe_key, predict_key = jax.random.split(key)
    flat_actions = flatten(actions, model.actor.fields, squash=False)
    noise = jax.random.uniform(observe_key, (B, half, rssm.stoch))
    tokens = model.encoder({k: v[:, :half] for k, v in obs.items()})
    seen, _ = rssm.observe(start, tokens, flat_actions[:, :half], obs["is_first"][:, :half], noise)
    noise = jax.random.uniform(predict_key, (B, T - half, rssm.stoch))
    last = jax.tree.map(lambda x: x[:, -1], seen)
    unseen = rssm.predict(last, flat_actions[:, half:], noise)
    states = jax.tree.map(lambda *x: jnp.concatenate(x, 1), seen, unseen)
    losses, predictions = model.decoder.losses(states, obs), model.decoder.predict(states)
    metrics = {f"open_loop_error/{key}": loss[:, half:].mean() for key, loss in losses.items()}
    for field in model.decoder.image_fields:
        truth = obs[field.key].astype(jnp.float32) / 255
        metrics[f"open_loop/{field.key}"] = video(truth, predictions[field.key])
    for field in (field for field in model.decoder.vector_fields if not field.is_classes):
        metrics[f"open_loop_signals/{field.key}"] = signals(obs[field.key], predictions[field.key])
    return metrics


def video(truth: jax.Array, prediction: jax.Array) -> jax.Array:
    """Truth, prediction and their difference below each other, sequences side by side, as uint8 (T, 3 H, B W, C)."""
    rows = jnp.concatenate([truth, prediction, (prediction - truth + 1.0) / 2.0], 2)  # (B, T, 3 H, W, C)
    B, T, height, width, channels = rows.shape
    rows = rows.transpose(1, 2, 0, 3, 4).reshape(T, height, B * width, channels)
    return (255 * jnp.clip(rows, 0.0, 1.0)).astype(jnp.uint8)


def signals(truth: jax.Array, prediction: jax.Array) -> jax.Array:
    """The first elements of true and predicted vectors, to be drawn as lines: float32 (2, B, T, D)."""
    flat = [x.reshape(*x.shape[:2], -1)[..., :SIGNALS].astype(jnp.float32) for x in (truth, prediction)]
    return jnp.stack(flat)
