"""Returns of imagined and replayed sequences, and the normalisers of their scale. Time is the first axis."""

import equinox as eqx
import jax
import jax.numpy as jnp

NORMS = ("none", "percentiles", "meanstd")


def lambda_return(reward: jax.Array, bootstrap: jax.Array, discount: jax.Array, trace: jax.Array) -> jax.Array:
    """R_t = r_{t+1} + d_{t+1} ((1 - l_{t+1}) b_{t+1} + l_{t+1} R_{t+1}), with R = b at the end.

    All are (T, N); the result is (T - 1, N). `trace` is lambda, zero where the return must not look further.
    """
    now = reward[1:] + discount[1:] * (1.0 - trace[1:]) * bootstrap[1:]
    factor = discount[1:] * trace[1:]

    def step(future, inputs):
        now, factor = inputs
        future = now + factor * future
        return future, future

    _, returns = jax.lax.scan(step, bootstrap[-1], (now, factor), reverse=True, unroll=5)
    return returns


class Normaliser(eqx.Module):
    """Moving estimate of the offset and scale of a quantity; `low` and `high` are averages that start at zero.

    percentiles: the 5th and 95th percentile of each batch. meanstd: mean and mean square.
    """

    low: jax.Array
    high: jax.Array
    kind: str = eqx.field(static=True)
    rate: float = eqx.field(static=True)
    limit: float = eqx.field(static=True)

    def __init__(self, kind: str, rate: float = 0.01, limit: float = 1.0):
        assert kind in NORMS, kind
        self.low = self.high = jnp.zeros(())
        self.kind, self.rate, self.limit = kind, rate, limit

    def update(self, x: jax.Array) -> "Normaliser":
        """Takes in a batch."""
        if self.kind == "none":
            return self
        x = jax.lax.stop_gradient(x)
        if self.kind == "percentiles":
            low, high = jnp.percentile(x, jnp.array([5.0, 95.0]))
        else:
            low, high = x.mean(), jnp.square(x).mean()
        mixed = [(1.0 - self.rate) * old + self.rate * new for old, new in ((self.low, low), (self.high, high))]
        return eqx.tree_at(lambda norm: (norm.low, norm.high), self, tuple(mixed))

    @property
    def offset(self) -> jax.Array:
        return self.low

    @property
    def scale(self) -> jax.Array:
        """At least `limit`, so that small differences are not blown up."""
        if self.kind == "none":
            return jnp.ones(())
        if self.kind == "percentiles":
            return jnp.maximum(self.limit, self.high - self.low)
        return jnp.maximum(self.limit, jnp.sqrt(jnp.maximum(0.0, self.high - jnp.square(self.low))))
