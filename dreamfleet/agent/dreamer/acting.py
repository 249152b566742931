"""The policy as compiled functions: for carries that are passed in (dict form) or kept on the device (slot form)."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp

from dreamfleet.agent.dreamer.learning import STOCH, compact, expand
from dreamfleet.agent.dreamer.model import Model
from dreamfleet.agent.dreamer.networks.encoder import Encoder
from dreamfleet.agent.dreamer.networks.heads import PolicyHead
from dreamfleet.agent.dreamer.networks.rssm import RSSM
from dreamfleet.agent.dreamer.spaces import Arrays, flatten


class Acting(eqx.Module):
    """The part of the model that acts."""

    encoder: Encoder
    rssm: RSSM
    actor: PolicyHead


class PolicyCarry(eqx.Module):
    """Per environment: the recurrent state, with class numbers for `stoch`, and the previous actions."""

    deter: jax.Array
    stoch: jax.Array
    actions: Arrays


def acting_part(model: Model) -> Acting:
    return Acting(model.encoder, model.rssm, model.actor)


def initial_policy_carry(acting: Acting, batch_size: int) -> PolicyCarry:
    """Carries of environments that begin."""
    rssm = acting.rssm
    return PolicyCarry(
        jnp.zeros((batch_size, rssm.deter), rssm.dtype),
        jnp.zeros((batch_size, rssm.stoch), jnp.uint8),
        {f.key: jnp.zeros((batch_size, *f.shape), f.dtype) for f in acting.actor.fields},
    )


def act(
    acting: Acting, carry: PolicyCarry, obs: Mapping[str, jax.Array], is_new: jax.Array, key: jax.Array, is_greedy: bool
) -> tuple[PolicyCarry, Arrays, Arrays]:
    """The next carry, the actions, and what replay stores with the step; `is_new` rows start from nothing."""
    encoder, rssm, actor = acting.encoder, acting.rssm, acting.actor
    latent_key, action_key = jax.random.split(key)
    rows = is_new.shape[0]
    state = expand(rssm, carry.deter, carry.stoch)
    tokens, actions = encoder(obs), flatten(carry.actions, actor.fields, squash=False)
    noise = jax.random.uniform(latent_key, (rows, rssm.stoch))
    steps = jax.tree.map(lambda x: x[:, None], (tokens, actions, obs["is_first"] | is_new, noise))
    state = jax.tree.map(lambda x: x[:, 0], rssm.observe(state, *steps)[0])
    policy = actor(state.features)
    actions = actor.mode(policy) if is_greedy else actor.sample(policy, actor.noise(action_key, (rows,)))
    outs = compact(rssm, state)
    return PolicyCarry(state.deter, outs[STOCH], actions), actions, outs


def act_in_slots(
    acting: Acting,
    slots: PolicyCarry,
    index: jax.Array,
    is_new: jax.Array,
    obs: Mapping[str, jax.Array],
    key: jax.Array,
    is_greedy: bool,
) -> tuple[PolicyCarry, Arrays, Arrays]:
    """Like `act`, for rows whose carries are the entries `index` of `slots`."""
    carry = jax.tree.map(lambda x: x[index], slots)
    carry, actions, outs = act(acting, carry, obs, is_new, key, is_greedy)
    slots = jax.tree.map(lambda all_, rows: all_.at[index].set(rows), slots, carry)
    return slots, actions, outs
