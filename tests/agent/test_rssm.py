"""The sequence model: its fast forms against plain ones, and what a new episode does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamfleet.agent.dreamer.imagination import imagination_noise, imagine
from dreamfleet.agent.dreamer.networks.heads import PolicyHead
from dreamfleet.agent.dreamer.networks.rssm import RSSM, LatentState
from dreamfleet.agent.dreamer.spaces import Field, flatten
from tests.agent.batches import QUICK, random_module

KEY = jax.random.key(0)
SIZES = {
    "deter": 16,
    "hidden": 6,
    "stoch": 3,
    "classes": 4,
    "blocks": 4,
    "unimix": 0.01,
    "dtype": "float32",
    "tuning": QUICK,
}


@pytest.fixture(scope="module", params=[1, 2])
def rssm(request):
    layers = {"dynamics_layers": request.param, "posterior_layers": request.param, "prior_layers": 2}
    return random_module(lambda: RSSM(KEY, 5, 3, **SIZES, **layers))


def plain_core(rssm, deter, hidden):
    """The recurrence as written down: every block sees its part of deter and all hidden parts."""
    blocks = deter.reshape(len(deter), rssm.blocks, -1)
    x = jnp.concatenate([blocks, jnp.repeat(hidden[:, None], rssm.blocks, 1)], -1)
    for layer, norm in zip(rssm.hidden, rssm.hidden_norms, strict=True):
        x = jnp.einsum("ngi,gio->ngo", x, layer.kernel).reshape(len(deter), -1) + layer.bias
        x = jax.nn.silu(norm(x)).reshape(len(deter), rssm.blocks, -1)
    gates = jnp.einsum("ngi,gio->ngo", x, rssm.gates.kernel) + rssm.gates.bias.reshape(rssm.blocks, -1)
    reset, candidate, update = (part.reshape(len(deter), -1) for part in jnp.split(gates, 3, -1))
    update = jax.nn.sigmoid(update - 1)
    return update * jnp.tanh(jax.nn.sigmoid(reset) * candidate) + (1 - update) * deter


@pytest.mark.parametrize("rows", [3, 200])
def test_core_is_the_plain_recurrence(rssm, rows):
    deter, hidden = jax.random.normal(KEY, (rows, 16)), jax.random.normal(KEY, (rows, 18))
    np.testing.assert_allclose(rssm.core(deter, hidden), plain_core(rssm, deter, hidden), rtol=1e-4, atol=1e-5)


def test_observing_is_one_step_after_the_other(rssm):
    B, T = 2, 5
    tokens, actions = jax.random.normal(KEY, (B, T, 5)), 2 * jax.random.normal(KEY, (B, T, 3))
    noise = jax.random.uniform(KEY, (B, T, 3))
    is_first = jnp.zeros((B, T), bool).at[0, 3].set(True)
    start = LatentState(jax.random.normal(KEY, (B, 16)), jax.nn.one_hot(jnp.ones((B, 3), int), 4).reshape(B, -1))
    states, logits = rssm.observe(start, tokens, actions, is_first, noise)
    state = start
    for t in range(T):
        keep = 1.0 - is_first[:, t, None]
        action = actions[:, t] * keep
        hidden = [
            rssm.deter_in(state.deter * keep),
            rssm.stoch_in(state.stoch * keep),
            rssm.action_in(action / jnp.maximum(1, jnp.abs(action))),
        ]
        deter = plain_core(rssm, state.deter * keep, jnp.concatenate(hidden, -1))
        x = jnp.concatenate([deter, tokens[:, t]], -1)
        for layer in rssm.posterior:
            x = layer(x)
        state = LatentState(deter, rssm.draw(rssm.posterior_logits(x), noise[:, t]))
        np.testing.assert_allclose(states.deter[:, t], state.deter, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(states.stoch[:, t], state.stoch, atol=1e-5)
        np.testing.assert_allclose(logits[:, t], rssm.posterior_logits(x), rtol=1e-4, atol=1e-5)


def test_a_new_episode_sees_nothing_of_the_one_before(rssm):
    tokens, noise = jax.random.normal(KEY, (1, 4, 5)), jax.random.uniform(KEY, (1, 4, 3))
    is_first = jnp.array([[False, False, True, False]])
    results = []
    for seed in (1, 2):
        keys = jax.random.split(jax.random.key(seed))
        start = LatentState(jax.random.normal(keys[0], (1, 16)), jnp.ones((1, 12)))
        actions = jax.random.normal(keys[1], (1, 4, 3)).at[:, 3].set(0.5)
        results.append(rssm.observe(start, tokens, actions, is_first, noise)[0].deter)
    assert (results[0][:, 1] != results[1][:, 1]).any()
    np.testing.assert_array_equal(results[0][:, 2:], results[1][:, 2:])


def test_imagining_is_predicting_with_the_actors_actions(rssm):
    fields = (Field("move", (2,), "float32"), Field("turn", (), "int32", (1,), (0,)))
    actor = random_module(lambda: PolicyHead(KEY, 28, fields, units=6, layers=2, scale=1.0))
    start = LatentState(jax.random.normal(KEY, (4, 16)), jax.nn.one_hot(jnp.zeros((4, 3), int), 4).reshape(4, -1))
    noise = imagination_noise(rssm, actor, KEY, 6, 4)
    features, actions, last = imagine(rssm, actor, start, noise)
    flat = flatten(actions, fields, squash=False).swapaxes(0, 1)
    predicted = rssm.predict(start, flat, noise[0].swapaxes(0, 1))
    states = jnp.concatenate([features[1:], last.features[None]]).swapaxes(0, 1)
    np.testing.assert_allclose(states, predicted.features, rtol=1e-4, atol=1e-5)
    expected = actor.sample(actor(features), noise[1])
    np.testing.assert_allclose(actions["move"], expected["move"], rtol=1e-4, atol=1e-5)
