"""Rolls the world model forward with the policy's actions, without gradients."""

import jax
import jax.numpy as jnp

from dreamfleet.agent.dreamer.networks.heads import PolicyHead
from dreamfleet.agent.dreamer.networks.rssm import RSSM, LatentState
from dreamfleet.agent.dreamer.spaces import flatten

Actions = dict[str, jax.Array]
Noise = tuple[jax.Array, Actions]


def imagination_noise(rssm: RSSM, actor: PolicyHead, key: jax.Array, horizon: int, rows: int) -> Noise:
    """Random numbers for `imagine`."""
    latent_key, action_key = jax.random.split(key)
    return jax.random.uniform(latent_key, (horizon, rows, rssm.stoch)), actor.noise(action_key, (horizon, rows))


def imagine(rssm: RSSM, actor: PolicyHead, start: LatentState, noise: Noise) -> tuple[jax.Array, Actions, LatentState]:
    """Features (H, N, F) of the states in which the actor acted, from the start on, its actions, and the last state.

    Products with the same input are one product: of `deter`, the input layers of prior, recurrence and actor; of
    `stoch`, those of recurrence and actor.
    """
    actor_deter, actor_stoch = actor.mlp.layers[0].linear.split(rssm.deter)
    from_deter = jnp.concatenate(
        [rssm.deter_in.linear.kernel, actor_deter.kernel, rssm.prior[0].linear.kernel], 1
    ).astype(rssm.dtype)
    from_stoch = jnp.concatenate([rssm.stoch_in.linear.kernel, actor_stoch.kernel], 1).astype(rssm.dtype)
    borders = (rssm.deter_in.linear.kernel.shape[1], from_stoch.shape[1])

    def step(carry, noise):
        state, projected = carry
        latent_noise, action_noise = noise
        dyn_deter, act_deter, _ = jnp.split(projected, borders, 1)
        dyn_stoch, act_stoch = jnp.split(state.stoch @ from_stoch, borders[:1], 1)
        x = actor.mlp.layers[0].finish(act_deter + act_stoch)
        for layer in actor.mlp.layers[1:]:
            x = layer(x)
        actions = actor.sample(actor.policy_of(x), action_noise)
        hidden = [
            rssm.deter_in.finish(dyn_deter),
            rssm.stoch_in.finish(dyn_stoch),
            rssm.embed_actions(flatten(actions, actor.fields, squash=False)),
        ]
        deter = rssm.core(state.deter, jnp.concatenate(hidden, -1))
        projected = deter @ from_deter
        x = rssm.prior[0].finish(projected[:, borders[1] :])
        for layer in rssm.prior[1:]:
            x = layer(x)
        following = LatentState(deter, rssm.draw(rssm.prior_logits(x), latent_noise))
        return (following, projected), (state.features, actions)

    unroll = min(rssm.tuning.imagine_unroll, len(noise[0]))
    (last, _), (features, actions) = jax.lax.scan(step, (start, start.deter @ from_deter), noise, unroll=unroll)
    return features, actions, last
