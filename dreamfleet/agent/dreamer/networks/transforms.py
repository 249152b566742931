"""Elementwise maps that squash large values, and the bins that are spaced by them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np


def symlog(x: jax.Array) -> jax.Array:
    """sign(x) log(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: jax.Array) -> jax.Array:
    """The inverse of symlog: sign(x) (exp(|x|) - 1)."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


@functools.cache
def symexp_bins(count: int) -> np.ndarray:
    """Bins from symexp(-20) to symexp(20), mirrored exactly; an even count has zero twice."""
    half = np.linspace(-20.0, 0.0, (count + 1) // 2, dtype=np.float32)
    half = -np.expm1(-half)
    mirrored = -half[::-1]
    return np.concatenate([half, mirrored[count % 2 :]]).astype(np.float32)
