"""The losses of the world model, the actor and the critic: arrays and distributions in, `(losses, metrics)` out."""

import jax
import jax.numpy as jnp

from dreamfleet.agent.dreamer.networks.distributions import Categorical, TwoHot
from dreamfleet.agent.dreamer.returns import Normaliser, lambda_return

sg = jax.lax.stop_gradient


def latent_losses(posterior: Categorical, prior: Categorical, free_nats: float) -> tuple[dict, dict]:
    """dyn = max(free, KL(sg(post) || prior)) and rep = max(free, KL(post || sg(prior)))."""
    dyn, rep = sg(posterior).kl(prior), posterior.kl(sg(prior))
    losses = {"dyn": jnp.maximum(free_nats, dyn), "rep": jnp.maximum(free_nats, rep)}
    return losses, {
        "kl": dyn.mean(),
        "posterior_entropy": posterior.entropy().mean(),
        "prior_entropy": prior.entropy().mean(),
    }


def imagination_returns(
    reward: jax.Array, cont: jax.Array, value: jax.Array, *, discount: float, trace: float
) -> tuple[jax.Array, jax.Array]:
    """Returns (T - 1, N) and weights (T, N) of imagined sequences (T, N).

    weight_t = prod_{s <= t} (discount * cont_s) / discount: the start's own continuation counts.
    """
    weight = jnp.cumprod(discount * cont, 0) / discount
    returns = lambda_return(reward, value, discount * cont, jnp.full_like(cont, trace))
    return returns, weight


def actor_loss(
    log_prob: jax.Array, entropy: jax.Array, advantage: jax.Array, weight: jax.Array, entropy_scale: float
) -> jax.Array:
    """-sg(weight) (log pi(a) sg(adv) + scale * entropy): reinforce for all kinds of actions."""
    return -sg(weight) * (log_prob * sg(advantage) + entropy_scale * entropy)


def critic_loss(
    value: TwoHot, target: jax.Array, slow_value: jax.Array, weight: jax.Array, slow_scale: float
) -> jax.Array:
    """sg(weight) (nll(target) + scale * nll(slow value)), both targets in the units that the value predicts."""
    if slow_scale == 1.0:
        return sg(weight) * value.loss(sg(target), sg(slow_value))
    return sg(weight) * (value.loss(sg(target)) + slow_scale * value.loss(sg(slow_value)))


def replay_returns(
    reward: jax.Array,
    is_last: jax.Array,
    is_terminal: jax.Array,
    bootstrap: jax.Array,
    *,
    discount: float,
    trace: float,
) -> jax.Array:
    """Returns (T - 1, N) along replayed rewards (T, N); a terminal step ends them, a last step bootstraps them."""
    live = discount * (1.0 - is_terminal.astype(jnp.float32))
    return lambda_return(reward, bootstrap, live, trace * (1.0 - is_last.astype(jnp.float32)))


def advantages(
    returns: jax.Array, value: jax.Array, return_norm: Normaliser, advantage_norm: Normaliser
) -> tuple[jax.Array, Normaliser, Normaliser]:
    """(R - v) / scale, with the normalisers updated before they are used."""
    return_norm = return_norm.update(returns)
    advantage = (returns - value) / return_norm.scale
    advantage_norm = advantage_norm.update(advantage)
    return (advantage - advantage_norm.offset) / advantage_norm.scale, return_norm, advantage_norm
