"""Distributions against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamfleet.agent.dreamer.networks.distributions import Bernoulli, BoundedNormal, Categorical, TwoHot, two_hot
from dreamfleet.agent.dreamer.networks.transforms import symexp, symexp_bins, symlog

KEY = jax.random.key(0)


def test_categorical_draws_by_its_probabilities():
    latent = Categorical(jnp.log(jnp.array([0.1, 0.6, 0.3])), unimix=0.01)
    noise = (jnp.arange(10000) + 0.5) / 10000
    counts = np.bincount(jax.vmap(latent.sample)(noise), minlength=3) / 10000
    np.testing.assert_allclose(counts, 0.99 * np.array([0.1, 0.6, 0.3]) + 0.01 / 3, atol=1e-3)


def test_categorical_never_draws_beyond_its_classes():
    latent = Categorical(jnp.zeros((1000, 7)))
    assert latent.sample(jnp.full(1000, 1.0 - 1e-7)).max() == 6


def test_straight_through_gradient_is_that_of_the_probabilities():
    logits, weights = jax.random.normal(KEY, (2, 3)), jnp.arange(3.0)
    classes = jnp.array([0, 2])
    passed = jax.grad(lambda x: (weights * Categorical(x, unimix=0.1).straight_through(classes)).sum())(logits)
    expected = jax.grad(lambda x: (weights * Categorical(x, unimix=0.1).probs).sum())(logits)
    np.testing.assert_allclose(passed, expected, rtol=1e-5)
    value = Categorical(logits).straight_through(classes)
    np.testing.assert_allclose(value, np.eye(3)[[0, 2]], atol=1e-6)


def test_events_are_summed():
    one, other = (jax.random.normal(key, (4, 2, 3)) for key in jax.random.split(KEY))
    latent = Categorical(one, event=1)
    assert latent.entropy().shape == latent.kl(Categorical(other, event=1)).shape == (4,)
    np.testing.assert_allclose(latent.kl(Categorical(one, event=1)), 0, atol=1e-6)
    np.testing.assert_allclose(Categorical(one, 1).entropy(), Categorical(one).entropy().sum(-1), rtol=1e-6)


def test_bounded_normal():
    dist = BoundedNormal(jnp.array([[0.5, -9.0]]), jnp.array([[0.0, 99.0]]), event=1)
    std = 0.9 / (1 + np.exp(-2)) + 0.1
    np.testing.assert_allclose(dist.std, [[std, 1.0]], rtol=1e-5)
    x = np.array([[0.1, 0.2]])
    center = np.tanh([[0.5, -9.0]])
    z = (x - center) / dist.std
    expected = (-0.5 * z**2 - np.log(dist.std) - 0.5 * np.log(2 * np.pi)).sum(-1)
    np.testing.assert_allclose(dist.log_prob(x), expected, rtol=1e-5)
    np.testing.assert_allclose(dist.sample(z), x, rtol=1e-5)


def test_randomness_is_between_a_sure_and_an_even_choice():
    logits = jnp.array([[[0.0, 0.0, 0.0], [99.0, 0.0, 0.0]]])  # two values: one even, one sure
    np.testing.assert_allclose(Categorical(logits, event=1).randomness(), [0.5], atol=1e-5)
    np.testing.assert_allclose(Categorical(logits).randomness(), [[1.0, 0.0]], atol=1e-5)
    raw = jnp.array([[-99.0, 99.0]])
    np.testing.assert_allclose(BoundedNormal(raw, raw, event=1).randomness(), [0.5], atol=1e-5)
    np.testing.assert_allclose(BoundedNormal(raw, raw, event=0).randomness(), [[0.0, 1.0]], atol=1e-5)


@pytest.mark.parametrize("count", [2, 5, 8, 21, 255])
def test_equal_logits_mean_exactly_zero(count):
    logits = jnp.full((3, count), 0.37)
    np.testing.assert_array_equal(TwoHot(logits).mean(), 0)
    assert (symexp_bins(count) == -symexp_bins(count)[::-1]).all()


def test_two_hot_keeps_the_value():
    bins = symexp_bins(255)
    target = jnp.concatenate([symexp(jnp.linspace(-19.0, 19.0, 77)), jnp.array([0.0, bins[3], 1e12, -1e12])])
    weights = two_hot(target, bins)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    assert ((weights > 0).sum(-1) <= 2).all()
    expected = np.clip(target, bins[0], bins[-1])
    np.testing.assert_allclose((weights * bins).sum(-1), expected, rtol=1e-4)


def test_a_bernoulli_can_be_taught_a_probability():
    gradient = jax.grad(lambda logit: Bernoulli(logit).loss(0.25))(jnp.log(0.25 / 0.75))
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_symexp_inverts_symlog():
    x = jnp.array([-1e4, -1.0, -1e-3, 0.0, 1e-3, 1.0, 1e4])
    np.testing.assert_allclose(symexp(symlog(x)), x, rtol=1e-4)
