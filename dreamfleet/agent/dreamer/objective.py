"""The loss that an update minimises: world model on replayed data, actor and critic on imagined and replayed states."""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp

from dreamfleet.agent.dreamer.imagination import imagination_noise, imagine
from dreamfleet.agent.dreamer.losses import (
    actor_loss,
    advantages,
    critic_loss,
    imagination_returns,
    latent_losses,
    replay_returns,
)
from dreamfleet.agent.dreamer.model import Model
from dreamfleet.agent.dreamer.networks.distributions import TwoHot
from dreamfleet.agent.dreamer.networks.heads import TwoHotHead
from dreamfleet.agent.dreamer.networks.rssm import LatentState
from dreamfleet.agent.dreamer.returns import Normaliser
from dreamfleet.agent.dreamer.spaces import Arrays, flatten
from dreamfleet.options.dreamer import DreamerOptions

sg = jax.lax.stop_gradient


class Norms(eqx.Module):
    """The normalisers of returns, values and advantages."""

    returns: Normaliser
    values: Normaliser
    advantages: Normaliser


def make_norms(options: DreamerOptions) -> Norms:
    """Normalisers that have seen nothing."""
    return Norms(Normaliser(options.return_norm), Normaliser(options.value_norm), Normaliser(options.advantage_norm))


class Outcome(eqx.Module):
    """What is left of the computation of a loss."""

    states: LatentState  # (B, T, ...)
    norms: Norms
    losses: Arrays  # mean of each loss, not scaled
    priority: jax.Array  # (B, T)
    metrics: Arrays


def objective(
    model: Model,
    slow_critic: TwoHotHead,
    norms: Norms,
    start: LatentState,
    obs: Mapping[str, jax.Array],
    actions: Mapping[str, jax.Array],
    key: jax.Array,
    options: DreamerOptions,
) -> tuple[jax.Array, Outcome]:
    """The weighted sum of all losses on sequences (B, T) that begin after `start`, with the previous `actions`."""
    observe_key, imagine_key = jax.random.split(key)
    states, losses, metrics = world_losses(model, start, obs, actions, observe_key, options)
    priority = _add([losses[key] for key in losses if key not in ("reward", "cont")])
    imagined, boot, norms, more = imagination_losses(model, slow_critic, norms, states, imagine_key, options)
    losses, metrics = {**losses, **imagined}, {**metrics, **more}
    if options.replay_value:
        losses["replay_value"] = replay_value_loss(model, slow_critic, norms.values, states, obs, boot, options)
    means = {name: loss.mean() for name, loss in losses.items()}
    scales: dict[str, float] = dataclasses.asdict(options.loss_scales)
    total = _add([mean * scales.get(name, scales["reconstruction"]) for name, mean in means.items()])
    metrics |= {f"loss/{name}": mean for name, mean in means.items()}
    return total, Outcome(states, norms, means, sg(priority), metrics)


def world_losses(
    model: Model,
    start: LatentState,
    obs: Mapping[str, jax.Array],
    actions: Mapping[str, jax.Array],
    key: jax.Array,
    options: DreamerOptions,
) -> tuple[LatentState, Arrays, Arrays]:
    """The states of the sequences, with reconstruction, reward, continuation and latent losses (B, T), and metrics."""
    rssm = model.rssm
    tokens = model.encoder(obs)
    noise = jax.random.uniform(key, (*obs["is_first"].shape, rssm.stoch))
    flat_actions = flatten(actions, model.actor.fields, squash=False)
    states, logits = rssm.observe(start, tokens, flat_actions, obs["is_first"], noise)
    losses, metrics = latent_losses(rssm.latent(logits), rssm.latent(rssm.prior_of(states.deter)), options.free_nats)
    losses |= model.decoder.losses(states, obs)
    features = states.features
    cont = 1.0 - obs["is_terminal"].astype(jnp.float32)
    cont *= 1.0 - 1.0 / options.horizon if options.contdisc else 1.0
    losses["reward"] = model.reward(features if options.reward_grad else sg(features)).loss(obs["reward"])
    losses["cont"] = model.cont(features).loss(cont)
    return states, losses, metrics


def imagination_losses(
    model: Model, slow_critic: TwoHotHead, norms: Norms, states: LatentState, key: jax.Array, options: DreamerOptions
) -> tuple[Arrays, jax.Array, Norms, Arrays]:
    """Actor and critic losses (B, K) on sequences imagined from the last K = `imag_last` states (all T if 0).

    Also returns the imagined return (B, K) of each of these states, the updated normalisers, and metrics.
    """
    B, T = states.deter.shape[:2]
    K = min(options.imag_last or T, T)
    starts = jax.tree.map(lambda x: x[:, T - K :].reshape(B * K, -1), states)
    noise = imagination_noise(model.rssm, model.actor, key, options.imag_length, B * K)
    features, actions, last = imagine(sg(model.rssm), sg(model.actor), sg(starts), noise)
    if options.ac_grads:
        features = features.at[0].set(starts.features)
    losses, returns, norms, metrics = actor_critic_losses(
        model, slow_critic, norms, features, last.features, actions, options
    )
    losses = {name: loss.mean(0).reshape(B, K) for name, loss in losses.items()}
    return losses, returns[0].reshape(B, K), norms, metrics


def actor_critic_losses(
    model: Model,
    slow_critic: TwoHotHead,
    norms: Norms,
    features: jax.Array,
    last: jax.Array,
    actions: Arrays,
    options: DreamerOptions,
) -> tuple[Arrays, jax.Array, Norms, Arrays]:
    """Losses (H, N) and returns (H, N) of sequences with features (H, N, F) and actions (H, N, ...).

    The state after them, with the features `last` (N, F), only ends the returns: it gets no loss.
    """
    H, N = features.shape[:2]
    features = features.reshape(H * N, -1)  # weight gradients are products over one axis
    actions = {key: value.reshape(H * N, *value.shape[2:]) for key, value in actions.items()}

    def everywhere(predict: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """A prediction without gradient for all states (H + 1, N)."""
        return jnp.concatenate([predict(sg(features)).reshape(H, N), predict(last)[None]])

    value = model.critic(features)
    mean = jnp.concatenate([sg(value).mean().reshape(H, N), sg(model.critic)(last).mean()[None]])
    slow = everywhere(lambda x: slow_critic(x).mean())
    baseline = (slow if options.slow_target else mean) * norms.values.scale + norms.values.offset
    returns, weight = imagination_returns(
        everywhere(lambda x: sg(model.reward)(x).mean()),
        everywhere(lambda x: sg(model.cont)(x).prob),
        baseline,
        discount=1.0 if options.contdisc else 1.0 - 1.0 / options.horizon,
        trace=options.trace,
    )
    advantage, return_norm, advantage_norm = advantages(returns, baseline[:-1], norms.returns, norms.advantages)
    value_norm = norms.values.update(returns)
    target = (returns - value_norm.offset) / value_norm.scale
    policy = model.actor(features)
    entropies = {key: dist.entropy() for key, dist in policy.items()}
    log_prob, entropy = model.actor.log_prob(policy, actions), _add(list(entropies.values()))
    flat_weight = weight[:-1].reshape(-1)
    losses = {
        "policy": actor_loss(log_prob, entropy, advantage.reshape(-1), flat_weight, options.entropy_scale),
        "value": critic_loss(value, target.reshape(-1), slow[:-1].reshape(-1), flat_weight, options.slow_scale),
    }
    metrics = {
        "return": returns.mean(),
        "return_scale": return_norm.scale,
        "value": mean.mean(),
        "advantage_size": jnp.abs(advantage).mean(),
        "weight": weight.mean(),
        **{f"entropy/{key}": value.mean() for key, value in entropies.items()},
        **{f"randomness/{key}": dist.randomness().mean() for key, dist in policy.items()},
    }
    losses = {name: loss.reshape(H, N) for name, loss in losses.items()}
    return losses, returns, Norms(return_norm, value_norm, advantage_norm), metrics


def replay_value_loss(
    model: Model,
    slow_critic: TwoHotHead,
    value_norm: Normaliser,
    states: LatentState,
    obs: Mapping[str, jax.Array],
    bootstrap: jax.Array,
    options: DreamerOptions,
) -> jax.Array:
    """Critic loss (B, K - 1) along the replayed rewards of the last K steps, with imagined returns (B, K) as values."""
    K = bootstrap.shape[1]
    states, last, terminal, reward = jax.tree.map(
        lambda x: x[:, x.shape[1] - K :], (states, obs["is_last"], obs["is_terminal"], obs["reward"])
    )
    features = states.features if options.replay_value_grad else sg(states.features)
    value, slow = model.critic(features), slow_critic(sg(features)).mean()
    returns = replay_returns(
        reward.T, last.T, terminal.T, bootstrap.T, discount=1.0 - 1.0 / options.horizon, trace=options.trace
    ).T
    target = (returns - value_norm.offset) / value_norm.scale
    weight = 1.0 - last.astype(jnp.float32)
    return critic_loss(TwoHot(value.logits[:, :-1]), target, slow[:, :-1], weight[:, :-1], options.slow_scale)


def _add(terms: list[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, terms)
